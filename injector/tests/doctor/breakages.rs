//! One thing is broken; exactly that is found.

use serde_json::{Value, json};
use sidecar_injector::config::BUILTIN_CONFIG;
use sidecar_injector::decide::webhook_selectors;
use sidecar_injector::doctor::Problem;

use super::healthy::{HOST, IssuedCert, cluster, encoded, installation, options, plain_pod};
use super::{diagnose, problems};

/// What breaks, what is found, and a part of the command that mends it.
type Breakage = (fn(&mut Vec<Value>), Problem, &'static str);

pub(crate) fn object<'a>(all: &'a mut [Value], kind: &str, name: &str) -> &'a mut Value {
    let found = all.iter_mut().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name}"))
}

fn own<'a>(all: &'a mut [Value], kind: &str) -> &'a mut Value {
    object(all, kind, "istio-sidecar-injector")
}

fn remove(all: &mut Vec<Value>, kind: &str) {
    all.retain(|object| object["kind"] != kind || object["metadata"]["name"] != "istio-sidecar-injector");
}

fn webhooks(all: &mut [Value], field: &str, value: &Value) {
    for webhook in own(all, "MutatingWebhookConfiguration")["webhooks"].as_array_mut().unwrap() {
        webhook[field] = value.clone();
    }
}

fn bundle(all: &mut [Value], text: &Value) {
    for webhook in own(all, "MutatingWebhookConfiguration")["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"]["caBundle"] = text.clone();
    }
}

fn certificate(all: &mut [Value], issued: &IssuedCert) {
    bundle(all, &encoded(&issued.ca));
    object(all, "Secret", "istio-sidecar-injector-tls")["data"]["tls.crt"] = encoded(&issued.leaf);
}

fn shop(all: &mut [Value], labels: &Value) {
    object(all, "Namespace", "shop")["metadata"]["labels"] = labels.clone();
}

fn config(all: &mut [Value], text: &str) {
    own(all, "ConfigMap")["data"]["config"] = json!(text);
}

fn replace(all: &mut [Value], from: &str, to: &str) {
    assert!(BUILTIN_CONFIG.contains(from));
    config(all, &BUILTIN_CONFIG.replace(from, to));
}

fn pod(all: &mut Vec<Value>, namespace: &str, change: impl Fn(&mut Value)) {
    let mut pod = plain_pod(namespace, "api");
    change(&mut pod);
    all.push(pod);
}

const RESTART: &str = "kubectl -n istio-system rollout restart deployment istio-sidecar-injector";
const INSTALL: &str = "sidecar-injector manifests --namespace istio-system --replace-istiod FLAGS | kubectl apply -f -   # FLAGS: those of";

const SERVING: [Breakage; 16] = [
    (
        |all| certificate(all, &IssuedCert::by(-1, HOST, -10, 80)),
        Problem::CertificateExpired,
        "kubectl -n istio-system delete secret istio-sidecar-injector-tls && ",
    ),
    (
        |all| {
            // Another one is there: the kind was saved.
            let other = own(all, "MutatingWebhookConfiguration");
            other["metadata"]["name"] = json!("cert-manager-webhook");
            other["webhooks"] = json!([{"name": "webhook.cert-manager.io"}]);
        },
        Problem::WebhookMissing,
        "sidecar-injector manifests --revision NAME FLAGS | kubectl apply -f -",
    ),
    (
        |all| webhooks(all, "objectSelector", &json!({"matchExpressions": [{"key": "a", "operator": "Is"}]})),
        Problem::SelectorUnreadable,
        "kubectl edit mutatingwebhookconfiguration istio-sidecar-injector",
    ),
    (|all| bundle(all, &json!("")), Problem::CaEmpty, RESTART),
    (|all| bundle(all, &json!("bm90IFBFTQ==")), Problem::CaUnreadable, RESTART),
    (|all| bundle(all, &encoded(&IssuedCert::new(HOST, -10, 80).ca)), Problem::CaMismatch, RESTART),
    (|all| certificate(all, &IssuedCert::new(HOST, -90, -1)), Problem::CertificateExpired, RESTART),
    (|all| certificate(all, &IssuedCert::new(HOST, 1, 90)), Problem::CertificateExpired, RESTART),
    (|all| certificate(all, &IssuedCert::new(HOST, -85, 5)), Problem::CertificateExpiring, RESTART),
    (
        |all| certificate(all, &IssuedCert::new("other.istio-system.svc", -10, 80)),
        Problem::CertificateNames,
        "kubectl -n istio-system delete secret istio-sidecar-injector-tls && kubectl -n istio-system rollout restart",
    ),
    (|all| remove(all, "Service"), Problem::ServiceMissing, INSTALL),
    (
        |all| own(all, "Service")["spec"]["selector"] = json!({"app": "another"}),
        Problem::ServiceSelector,
        "kubectl -n istio-system edit service istio-sidecar-injector",
    ),
    (
        |all| own(all, "Service")["spec"]["ports"][0]["targetPort"] = json!(443),
        Problem::ServicePort,
        "kubectl -n istio-system edit service istio-sidecar-injector",
    ),
    (
        |all| own(all, "Service")["spec"]["ports"][0]["port"] = json!(8443),
        Problem::ServicePort,
        "kubectl -n istio-system edit service istio-sidecar-injector",
    ),
    (
        |all| own(all, "Deployment")["status"] = json!({"replicas": 2}),
        Problem::Unavailable,
        "kubectl -n istio-system describe deployment istio-sidecar-injector",
    ),
    (
        |all| {
            let slice = object(all, "EndpointSlice", "istio-sidecar-injector-x");
            slice["endpoints"][0]["conditions"]["ready"] = json!(false);
        },
        Problem::NoEndpoints,
        "kubectl -n istio-system get pods -l app=istio-sidecar-injector,istio=sidecar-injector,istio.io/rev=default",
    ),
];

const CLUSTER: [Breakage; 17] = [
    (|all| own(all, "RoleBinding")["subjects"] = json!([]), Problem::RoleMissing, INSTALL),
    (
        |all| {
            own(all, "ConfigMap")["data"].as_object_mut().expect("data").shift_remove("values");
        },
        Problem::ConfigBroken,
        "sidecar-injector lint",
    ),
    (
        // It can be read, and fails for every pod.
        |all| own(all, "ConfigMap")["data"]["values"] = json!("global: {}"),
        Problem::ConfigBroken,
        "sidecar-injector lint",
    ),
    (
        |all| own(all, "NetworkPolicy")["spec"]["ingress"] = json!([{"from": [{"namespaceSelector": {}}]}]),
        Problem::PolicyBlocks,
        INSTALL,
    ),
    (
        |all| own(all, "NetworkPolicy")["spec"]["ingress"] = json!([{"ports": [{"port": 15014}]}]),
        Problem::PolicyBlocks,
        INSTALL,
    ),
    (
        |all| {
            let server = object(all, "Pod", "kube-apiserver-a");
            server["spec"]["containers"][0]["env"][1]["value"] =
                json!("127.0.0.1,10.0.0.0/8,svc.example.com");
        },
        Problem::ApiServerProxy,
        "add .svc to no_proxy",
    ),
    (
        |all| {
            let server = object(all, "Pod", "kube-apiserver-a");
            server["spec"]["containers"][0]["command"][1] =
                json!("--disable-admission-plugins=A,MutatingAdmissionWebhook");
        },
        Problem::AdmissionDisabled,
        "remove MutatingAdmissionWebhook",
    ),
    (
        |all| webhooks(all, "failurePolicy", &json!("Ignore")),
        Problem::FailurePolicyIgnore,
        r#"{"op":"add","path":"/webhooks/3/failurePolicy","value":"Fail"}"#,
    ),
    (|all| webhooks(all, "timeoutSeconds", &json!(2)), Problem::TimeoutShort, "/webhooks/0/timeoutSeconds"),
    (
        |all| {
            remove(all, "HorizontalPodAutoscaler");
            own(all, "Deployment")["spec"]["replicas"] = json!(1);
        },
        Problem::SingleReplica,
        "kubectl -n istio-system scale deployment istio-sidecar-injector --replicas=2",
    ),
    (
        |all| own(all, "HorizontalPodAutoscaler")["spec"]["minReplicas"] = json!(1),
        Problem::SingleReplica,
        r#"patch horizontalpodautoscaler istio-sidecar-injector -p '{"spec":{"minReplicas":2}}'"#,
    ),
    (
        |all| {
            let mut second = own(all, "MutatingWebhookConfiguration").clone();
            second["metadata"]["name"] = json!("istio-sidecar-injector-old");
            all.push(second);
        },
        Problem::Overlap,
        "install one of them with a revision of its own: istio-sidecar-injector (revision default) belongs to an installation of \
         sidecar-injector, istio-sidecar-injector-old (revision default) belongs to an installation of sidecar-injector",
    ),
    (
        |all| {
            let mut tag = own(all, "MutatingWebhookConfiguration").clone();
            tag["metadata"] = json!({"name": "istio-revision-tag-default", "labels": {"istio.io/rev": "1-28",
                "istio.io/tag": "default", "operator.istio.io/component": "Pilot"}});
            let mut config = own(all, "ConfigMap").clone();
            config["metadata"]["name"] = json!("istio-sidecar-injector-1-28");
            all.extend([tag, config]);
        },
        Problem::Overlap,
        "istioctl tag remove default   # no other label selects one of them: \
         istio-revision-tag-default (revision 1-28) belongs to Istio's component Pilot, istio-sidecar-injector (revision default) \
         belongs to an installation of sidecar-injector",
    ),
    (
        |all| {
            let mut tag = own(all, "MutatingWebhookConfiguration").clone();
            tag["metadata"] = json!({"name": "istio-revision-tag-default", "labels": {"istio.io/rev": "1-28",
                "istio.io/tag": "default", "operator.istio.io/component": "Pilot"}});
            let mut revision = tag.clone();
            revision["metadata"]["name"] = json!("istio-sidecar-injector-1-28");
            revision["webhooks"] = json!(webhook_selectors::of_revision("1-28", false, &[]));
            let client = tag["webhooks"][0]["clientConfig"].clone();
            for webhook in revision["webhooks"].as_array_mut().unwrap() {
                webhook["clientConfig"] = client.clone();
            }
            let mut config = own(all, "ConfigMap").clone();
            config["metadata"]["name"] = json!("istio-sidecar-injector-1-28");
            let labels = json!({"istio.io/rev": "1-28"});
            let old = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old", "labels": labels}});
            all.extend([tag, revision, config, old]);
        },
        Problem::Overlap,
        "kubectl label namespace shop istio.io/rev=1-28 istio-injection- --overwrite   # or another revision: \
         istio-revision-tag-default (revision 1-28) belongs to Istio's component Pilot, istio-sidecar-injector (revision default) \
         belongs to an installation of sidecar-injector; istioctl tag remove default removes the tag",
    ),
    (|all| remove(all, "ConfigMap"), Problem::ConfigMissing, INSTALL),
    (
        |all| replace(all, "policy: enabled", "policy: true"),
        Problem::PolicyUnknown,
        "kubectl -n istio-system edit configmap istio-sidecar-injector",
    ),
    (
        |all| config(all, "policy: enabled\ntemplates: {sidecar: '{{ nonsense }}'}\n"),
        Problem::ConfigBroken,
        "sidecar-injector lint",
    ),
];

const NAMESPACES: [Breakage; 6] = [
    (
        |all| {
            all.retain(|object| {
                object["kind"] == "Event"
                    || object["metadata"]["name"] != "shop" && object["metadata"]["namespace"] != "shop"
            })
        },
        Problem::SelectsNothing,
        "kubectl label namespace NAMESPACE istio-injection=enabled --overwrite",
    ),
    (
        |all| shop(all, &json!({"istio-injection": "enabled", "istio.io/rev": "default"})),
        Problem::BothLabels,
        "kubectl label namespace shop istio-injection-",
    ),
    (
        |all| object(all, "Namespace", "plain")["metadata"]["labels"] = json!({"istio.io/rev": "1-28"}),
        Problem::UnknownRevision,
        "kubectl label namespace plain istio.io/rev=default --overwrite",
    ),
    (
        |all| object(all, "Namespace", "plain")["metadata"]["labels"] = json!({"istio-injection": "true"}),
        Problem::LabelValue,
        "kubectl label namespace plain istio-injection=enabled --overwrite",
    ),
    (
        |all| {
            object(all, "Namespace", "plain")["metadata"]["labels"] = json!({"istio-injection": "disabled"})
        },
        Problem::NamespaceDisabled,
        "kubectl label namespace plain istio-injection=enabled --overwrite",
    ),
    (
        |all| {
            pod(all, "plain", |pod| pod["metadata"]["labels"]["istio.io/rev"] = json!("1-28"));
        },
        Problem::UnknownRevision,
        "kubectl label namespace plain istio-injection=enabled",
    ),
];

const PODS: [Breakage; 14] = [
    (
        |all| {
            pod(all, "istio-system", |pod| {
                pod["spec"]["containers"][0] = json!({"name": "istio-proxy", "image": "auto"})
            })
        },
        Problem::ImageAuto,
        "put the workload into another namespace",
    ),
    (
        |all| {
            pod(all, "kube-system", |pod| {
                pod["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("true")
            })
        },
        Problem::RequestIgnored,
        "put the workload into another namespace",
    ),
    (
        |all| pod(all, "plain", |pod| pod["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("true")),
        Problem::SidecarMissing,
        "kubectl -n plain rollout restart deployment api",
    ),
    (
        |all| {
            pod(all, "plain", |pod| {
                pod["spec"]["containers"][0] = json!({"name": "istio-proxy", "image": "auto"})
            })
        },
        Problem::ImageAuto,
        "kubectl label namespace plain istio-injection=enabled --overwrite && kubectl -n plain rollout restart deployment api",
    ),
    (
        |all| {
            pod(all, "shop", |pod| {
                pod["spec"]["initContainers"] = json!([{"name": "istio-proxy", "image": "auto"}])
            })
        },
        Problem::ImageAuto,
        "kubectl -n shop rollout restart deployment api",
    ),
    (
        |all| pod(all, "shop", |_| ()),
        Problem::SidecarMissing,
        "kubectl -n shop rollout restart deployment api",
    ),
    (
        |all| pod(all, "shop", |pod| pod["metadata"]["creationTimestamp"] = json!("2026-04-30T23:59:59Z")),
        Problem::OlderThanWebhook,
        "kubectl -n shop rollout restart deployment api",
    ),
    (
        |all| pod(all, "shop", |pod| pod["metadata"]["creationTimestamp"] = json!("2026-05-01T00:00:00Z")),
        Problem::OlderThanWebhook,
        "kubectl -n shop rollout restart deployment api",
    ),
    (
        |all| pod(all, "shop", |pod| pod["spec"]["hostNetwork"] = json!(true)),
        Problem::HostNetwork,
        "remove hostNetwork",
    ),
    (
        |all| pod(all, "shop", |pod| pod["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("false")),
        Problem::OptedOut,
        "remove sidecar.istio.io/inject",
    ),
    (
        |all| {
            pod(all, "shop", |pod| {
                pod["metadata"]["annotations"] = json!({"sidecar.istio.io/inject": "false"})
            })
        },
        Problem::OptedOut,
        "remove sidecar.istio.io/inject",
    ),
    (
        |all| {
            pod(all, "plain", |pod| {
                pod["metadata"]["annotations"] = json!({"sidecar.istio.io/inject": "true"})
            })
        },
        Problem::RequestIgnored,
        "kubectl label namespace plain istio-injection=enabled --overwrite && kubectl -n plain rollout restart deployment api",
    ),
    (
        |all| {
            replace(all, "neverInjectSelector: []", "neverInjectSelector: [{matchLabels: {app: api}}]");
            pod(all, "shop", |_| ());
        },
        Problem::Excluded,
        "kubectl -n istio-system edit configmap istio-sidecar-injector",
    ),
    (
        |all| {
            replace(all, "policy: enabled", "policy: disabled");
            pod(all, "shop", |_| ());
        },
        Problem::Excluded,
        "kubectl -n istio-system edit configmap istio-sidecar-injector",
    ),
];

fn each() -> impl Iterator<Item = Breakage> {
    SERVING.into_iter().chain(CLUSTER).chain(NAMESPACES).chain(PODS)
}

#[test]
fn each_breakage_is_found_and_nothing_else() {
    for (at, (breaks, problem, fix)) in each().enumerate() {
        let mut all = cluster();
        breaks(&mut all);
        let diagnosis = diagnose(&all, &[]);
        assert_eq!(problems(&diagnosis), [problem], "breakage {at}: {:#?}", diagnosis.findings);
        let finding = &diagnosis.findings[0];
        assert!(finding.fix.contains(fix), "breakage {at}: {} lacks {fix}", finding.fix);
        for text in [&finding.object, &finding.seen, &finding.cause] {
            assert!(!text.is_empty(), "{finding:?}");
        }
        assert!(diagnosis.unchecked.is_empty(), "breakage {at}: {:?}", diagnosis.unchecked);
    }
}

#[test]
fn a_namespace_that_was_asked_about_is_explained() {
    let diagnosis = diagnose(&cluster(), &["plain"]);
    assert_eq!(problems(&diagnosis), [Problem::NotSelected]);
    let finding = &diagnosis.findings[0];
    assert!(finding.seen.contains("label istio-injection must be enabled"), "{}", finding.seen);
    assert_eq!(finding.fix, "kubectl label namespace plain istio-injection=enabled --overwrite");
    assert!(diagnosis.broken());
    let mut all = cluster();
    shop(&mut all, &json!({"istio-injection": "disabled"}));
    assert_eq!(problems(&diagnose(&all, &["shop"])), [Problem::NotSelected], "asked: it is not only a note");
    assert!(diagnose(&cluster(), &["nowhere"]).unchecked[0].contains("nowhere"));
}

#[test]
fn every_problem_has_its_test() {
    let tested: Vec<Problem> = each().map(|(_, problem, _)| problem).collect();
    let elsewhere = [
        Problem::CallFailed,
        Problem::ControlPlaneMissing,
        Problem::JobNeverEnds,
        Problem::MatchConditions,
        Problem::NotSelected,
        Problem::PodDenied,
        Problem::PodSecurity,
        Problem::WebhookPath,
        Problem::WebhookRules,
    ];
    for problem in Problem::ALL {
        assert!(tested.contains(problem) || elsewhere.contains(problem), "{problem:?}");
    }
    let mut slugs: Vec<&str> = Problem::ALL.iter().map(|problem| problem.slug()).collect();
    slugs.sort_unstable();
    slugs.dedup();
    assert_eq!(slugs.len(), Problem::ALL.len());
}

#[test]
fn pods_of_one_workload_are_one_finding() {
    let mut all = cluster();
    for number in 0..3 {
        pod(&mut all, "shop", |pod| pod["metadata"]["name"] = json!(format!("api-5d4f-{number}")));
    }
    let diagnosis = diagnose(&all, &[]);
    assert_eq!(problems(&diagnosis), [Problem::SidecarMissing]);
    assert_eq!(diagnosis.findings[0].object, "Deployment shop/api (3 pods)");
}

#[test]
fn only_a_revision_is_installed() {
    let mut all = installation(&options("canary"));
    all.push(
        json!({"kind": "Namespace", "metadata": {"name": "shop", "labels": {"istio-injection": "enabled"}}}),
    );
    all.push(
        json!({"kind": "Namespace", "metadata": {"name": "beta", "labels": {"istio.io/rev": "canary"}}}),
    );
    let diagnosis = diagnose(&all, &[]);
    assert_eq!(problems(&diagnosis), [Problem::UnknownRevision]);
    assert_eq!(
        diagnosis.findings[0].fix,
        "kubectl label namespace shop istio-injection- istio.io/rev=canary --overwrite"
    );
    all.push(json!({"kind": "Namespace", "metadata": {"name": "plain"}}));
    let diagnosis = diagnose(&all, &["plain"]);
    assert_eq!(
        diagnosis.findings[0].fix,
        "kubectl label namespace plain istio-injection- istio.io/rev=canary --overwrite"
    );
}
