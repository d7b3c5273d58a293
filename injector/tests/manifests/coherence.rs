//! References between objects match.

use serde_json::{Value, json};
use sidecar_injector::decide::Selector;
use sidecar_injector::manifests::{Certificates, Names, Options, Platform, uninstall};

use super::{all, objects, only};

fn pod(objects: &[Value]) -> &Value {
    &only(objects, "Deployment")["spec"]["template"]
}

fn arguments(objects: &[Value]) -> Vec<&str> {
    let arguments = pod(objects)["spec"]["containers"][0]["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap()).collect()
}

#[test]
fn selectors_find_the_pods_of_their_revision_and_no_others() {
    for options in all() {
        let mine = objects(&options);
        let revision = if options.revision.as_str().is_empty() { "other" } else { "" };
        let others = objects(&Options { revision: revision.parse().unwrap(), ..options.clone() });
        let spec = &only(&mine, "Deployment")["spec"]["template"]["spec"];
        for selector in [
            &json!({"matchLabels": only(&mine, "Service")["spec"]["selector"]}),
            &only(&mine, "Deployment")["spec"]["selector"],
            &only(&mine, "PodDisruptionBudget")["spec"]["selector"],
            &only(&mine, "NetworkPolicy")["spec"]["podSelector"],
            &spec["topologySpreadConstraints"][0]["labelSelector"],
            &spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
                ["labelSelector"],
        ] {
            let selector = Selector::parse(selector).unwrap();
            assert!(!selector.is_empty());
            let labels = |objects: &[Value]| pod(objects)["metadata"]["labels"].as_object().unwrap().clone();
            assert!(selector.matches(&labels(&mine)));
            assert!(!selector.matches(&labels(&others)));
        }
    }
}

#[test]
fn ports_line_up_from_the_webhook_to_the_container() {
    for options in all() {
        let objects = objects(&options);
        let container = &pod(&objects)["spec"]["containers"][0];
        let number = |name: &Value| {
            let ports = container["ports"].as_array().unwrap();
            ports.iter().find(|port| port["name"] == *name).unwrap()["containerPort"].clone()
        };
        let service = only(&objects, "Service");
        for webhook in only(&objects, "MutatingWebhookConfiguration")["webhooks"].as_array().unwrap() {
            let called = &webhook["clientConfig"]["service"];
            assert_eq!(called["name"], service["metadata"]["name"]);
            assert_eq!(called["namespace"], service["metadata"]["namespace"]);
            let ports = service["spec"]["ports"].as_array().unwrap();
            let port = ports.iter().find(|port| port["port"] == called["port"]).unwrap();
            assert_eq!(number(&port["targetPort"]), 15017);
        }
        assert!(arguments(&objects).contains(&"--https-addr=:15017"));
        assert!(arguments(&objects).contains(&"--monitoring-addr=:15014"));
        for (probe, path) in
            [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
        {
            assert_eq!(container[probe]["httpGet"]["path"], path);
            assert_eq!(number(&container[probe]["httpGet"]["port"]), 15014);
        }
        let open = &only(&objects, "NetworkPolicy")["spec"]["ingress"][0];
        assert_eq!(
            open["ports"],
            json!([{"port": 15017, "protocol": "TCP"}, {"port": 15014, "protocol": "TCP"}])
        );
        assert_eq!(open.get("from"), None, "API servers are on the network of their node");
    }
}

#[test]
fn names_refer_to_objects_that_are_there() {
    for options in all() {
        let objects = objects(&options);
        let names = Names::new(&options.revision);
        let there = |kind: &str, name: &str| {
            objects.iter().any(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        };
        for binding in ["ClusterRoleBinding", "RoleBinding"] {
            let binding = only(&objects, binding);
            let role = &binding["roleRef"];
            assert!(there(role["kind"].as_str().unwrap(), role["name"].as_str().unwrap()));
            assert!(there("ServiceAccount", binding["subjects"][0]["name"].as_str().unwrap()));
        }
        assert!(there("ServiceAccount", pod(&objects)["spec"]["serviceAccountName"].as_str().unwrap()));
        let arguments = arguments(&objects);
        let value = |flag: &str| {
            let argument = arguments.iter().find_map(|argument| argument.strip_prefix(flag));
            argument.unwrap_or_else(|| panic!("{flag} {arguments:?}"))
        };
        if options.certificates == Certificates::SelfSigned {
            assert_eq!(value("--namespace="), "$(POD_NAMESPACE)");
            assert!(there("Service", value("--service=")));
            assert!(there("MutatingWebhookConfiguration", value("--webhook-config=")));
        }
        assert!(there("ConfigMap", value("--watch-configmap=$(POD_NAMESPACE)/")));
        assert!(there("ConfigMap", &names.mesh()));
        assert!(there(
            "Deployment",
            only(&objects, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"].as_str().unwrap()
        ));
        if options.validating_policy {
            assert!(there(
                "ValidatingAdmissionPolicy",
                only(&objects, "ValidatingAdmissionPolicyBinding")["spec"]["policyName"].as_str().unwrap()
            ));
        }
        let mut titles: Vec<_> =
            objects.iter().map(|object| (&object["kind"], &object["metadata"]["name"])).collect();
        titles.sort_by_key(|title| format!("{title:?}"));
        let count = titles.len();
        titles.dedup();
        assert_eq!(titles.len(), count);
    }
}

/// The restricted Pod Security Standard, and what goes beyond it.
#[test]
fn the_pod_is_restricted() {
    for options in all() {
        let objects = objects(&options);
        let spec = &pod(&objects)["spec"];
        for key in ["hostNetwork", "hostPID", "hostIPC"] {
            assert_eq!(spec.get(key), None);
        }
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let user = spec["securityContext"].get("runAsUser");
        match options.platform {
            Platform::Kubernetes => assert!(user.and_then(Value::as_u64).is_some_and(|user| user > 0)),
            Platform::Openshift => assert_eq!(user, None),
        }
        for container in spec["containers"].as_array().unwrap() {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false);
            assert_eq!(context["privileged"], false);
            assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
            assert_eq!(context["readOnlyRootFilesystem"], true);
            assert!(container["ports"].as_array().unwrap().iter().all(|port| port.get("hostPort").is_none()));
        }
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            assert!(volume.get("secret").is_some(), "{volume}");
        }
        assert_eq!(pod(&objects)["metadata"]["labels"]["sidecar.istio.io/inject"], "false");
        let grace =
            arguments(&objects).iter().find_map(|argument| argument.strip_prefix("--grace=")).unwrap();
        assert!(spec["terminationGracePeriodSeconds"].as_u64().unwrap() > grace.parse().unwrap());
    }
}

fn allowed(role: &Value, resource: &str, name: Option<&str>, verb: &str) -> bool {
    role["rules"].as_array().unwrap().iter().any(|rule| {
        let has = |key: &str, wanted: &str| rule[key].as_array().unwrap().iter().any(|value| value == wanted);
        let names = rule.get("resourceNames").and_then(Value::as_array);
        let named =
            names.is_none_or(|names| name.is_some_and(|name| names.iter().any(|value| value == name)));
        has("resources", resource) && has("verbs", verb) && named
    })
}

#[test]
fn the_injector_may_do_what_it_does_and_no_more() {
    for options in all() {
        let objects = objects(&options);
        let names = Names::new(&options.revision);
        let (cluster, local) = (only(&objects, "ClusterRole"), only(&objects, "Role"));
        for verb in ["get", "list", "watch"] {
            assert!(allowed(cluster, "nodes", None, verb));
            assert_eq!(allowed(cluster, "namespaces", None, verb), options.platform == Platform::Openshift);
            for map in [names.injector(), names.mesh()] {
                assert!(allowed(local, "configmaps", Some(&map), verb));
            }
            assert!(!allowed(local, "configmaps", Some("another"), verb));
        }
        let own = options.certificates == Certificates::SelfSigned;
        for verb in ["get", "list", "watch", "patch"] {
            let configuration = names.injector();
            assert_eq!(allowed(cluster, "mutatingwebhookconfigurations", Some(&configuration), verb), own);
            assert!(!allowed(cluster, "mutatingwebhookconfigurations", Some("another"), verb));
        }
        for verb in ["get", "list", "watch", "update"] {
            assert_eq!(allowed(local, "secrets", Some(&names.secret()), verb), own);
            assert!(!allowed(local, "secrets", Some("another"), verb));
        }
        assert_eq!(allowed(local, "secrets", None, "create"), own);
        let rules = |role: &Value| role["rules"].as_array().unwrap().clone();
        for rule in [rules(cluster), rules(local)].concat() {
            let text = rule.to_string();
            assert!(!text.contains('*') && !text.contains("delete") && !text.contains("pods"), "{text}");
        }
        for verb in ["create", "update", "patch", "delete"] {
            assert!(!allowed(cluster, "nodes", None, verb) && !allowed(local, "configmaps", None, verb));
        }
        assert!(!allowed(cluster, "secrets", None, "get") && !allowed(cluster, "configmaps", None, "get"));
    }
}

#[test]
fn the_configuration_comes_last_and_there_is_no_namespace() {
    for options in all() {
        let objects = objects(&options);
        assert!(
            objects.iter().all(|object| object["kind"] != "Namespace"),
            "deleting these must not delete a control plane"
        );
        assert_eq!(objects.last().unwrap()["kind"], "MutatingWebhookConfiguration");
        let at = |kind: &str| objects.iter().position(|object| object["kind"] == kind);
        assert!(at("ServiceAccount") < at("Deployment") && at("ConfigMap") < at("Deployment"));
        assert!(at("RoleBinding") < at("Deployment") && at("Certificate") < at("Deployment"));
    }
}

#[test]
fn uninstalling_spares_what_is_shared_and_deletes_the_secrets() {
    for options in all() {
        let (installed, deleted) = (objects(&options), uninstall(&options).unwrap());
        let key = |object: &Value| {
            (
                object["kind"].clone(),
                object["metadata"]["name"].clone(),
                object["metadata"]["namespace"].clone(),
            )
        };
        let spared: Vec<_> = installed
            .iter()
            .map(key)
            .filter(|object| !deleted.iter().any(|one| key(one) == *object))
            .collect();
        if options.revision.as_str().is_empty() {
            assert_eq!(spared, [(json!("ConfigMap"), json!("istio"), json!(options.namespace.as_str()))]);
        } else {
            assert_eq!(spared, []);
        }
        assert_eq!(deleted[0]["kind"], "MutatingWebhookConfiguration", "no pod is rejected meanwhile");
        assert!(deleted.iter().all(|object| object["kind"] != "Namespace"));
        let secrets = deleted.iter().filter(|object| object["kind"] == "Secret");
        let names: Vec<&str> = secrets.map(|secret| secret["metadata"]["name"].as_str().unwrap()).collect();
        assert!(names.iter().any(|name| name.ends_with("-tls")) && names.len() == 3, "{names:?}");
        assert!(deleted.iter().rev().take(3).all(|object| object["kind"] == "Secret"), "after the roles");
    }
}

#[test]
fn cert_manager_makes_what_is_mounted_and_trusted() {
    for options in all() {
        let objects = objects(&options);
        let configuration = only(&objects, "MutatingWebhookConfiguration");
        let annotation = configuration["metadata"]["annotations"].get("cert-manager.io/inject-ca-from");
        let arguments = arguments(&objects);
        if options.certificates == Certificates::SelfSigned {
            assert_eq!(annotation, None);
            assert!(arguments.contains(&"--self-signed") && !arguments.contains(&"--ca-managed-externally"));
            continue;
        }
        assert!(arguments.contains(&"--ca-managed-externally"));
        for flag in ["--self-signed", "--service", "--namespace", "--webhook-config"] {
            assert!(
                !arguments.iter().any(|argument| argument.starts_with(flag)),
                "{flag} is for certificates of its own"
            );
        }
        let wanted = annotation.unwrap().as_str().unwrap();
        let leaf = objects.iter().find(|object| {
            let metadata = &object["metadata"];
            object["kind"] == "Certificate"
                && wanted
                    == format!(
                        "{}/{}",
                        metadata["namespace"].as_str().unwrap(),
                        metadata["name"].as_str().unwrap()
                    )
        });
        let leaf = leaf.unwrap();
        let service =
            format!("{}.{}.svc", Names::new(&options.revision).injector(), options.namespace.as_str());
        assert_eq!(leaf["spec"]["dnsNames"][0], service);
        let spec = &pod(&objects)["spec"];
        assert_eq!(spec["volumes"][0]["secret"]["secretName"], leaf["spec"]["secretName"]);
        let mount = spec["containers"][0]["volumeMounts"][0]["mountPath"].as_str().unwrap();
        assert!(arguments.contains(&format!("--tls-cert={mount}/tls.crt").as_str()));
        assert!(arguments.contains(&format!("--tls-key={mount}/tls.key").as_str()));
        for certificate in objects.iter().filter(|object| object["kind"] == "Certificate") {
            let issuer = &certificate["spec"]["issuerRef"]["name"];
            assert!(
                objects
                    .iter()
                    .any(|object| object["kind"] == "Issuer" && object["metadata"]["name"] == *issuer)
            );
        }
    }
}

/// Applying them again would reset the Deployment to the minimum.
#[test]
fn replicas_are_the_autoscaler_s() {
    for options in all() {
        let objects = objects(&options);
        let deployment = only(&objects, "Deployment");
        assert!(deployment["spec"].get("replicas").is_none(), "{deployment}");
        let autoscaler = &only(&objects, "HorizontalPodAutoscaler")["spec"];
        assert_eq!(autoscaler["minReplicas"], options.replicas.get());
        assert_eq!(autoscaler["scaleTargetRef"]["kind"], "Deployment");
        assert_eq!(autoscaler["scaleTargetRef"]["name"], deployment["metadata"]["name"]);
    }
}
