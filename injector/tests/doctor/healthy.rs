//! A cluster in which everything is as it should be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_MESH, BUILTIN_VALUES};
use sidecar_injector::manifests::{Certificates, FailurePolicy, Options, Platform, Texts, objects};

use super::{NOW, diagnose, problems};

const DAY: i64 = 24 * 60 * 60;
pub(crate) const HOST: &str = "istio-sidecar-injector.istio-system.svc";

/// A certificate of a CA; both as PEM. Days count from now.
pub(crate) struct IssuedCert {
    pub(crate) ca: String,
    pub(crate) leaf: String,
}

impl IssuedCert {
    pub(crate) fn new(host: &str, from: i64, to: i64) -> Self {
        Self::by(365, host, from, to)
    }

    /// By a CA that lasts so many days.
    pub(crate) fn by(ca_days: i64, host: &str, from: i64, to: i64) -> Self {
        let at = |days: i64| {
            let seconds = i64::try_from(NOW).unwrap() + days * DAY;
            rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds.try_into().unwrap())
        };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (at(-365), at(ca_days));
        let ca = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (at(from), at(to));
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        Self { ca: ca.pem(), leaf: leaf.pem() }
    }
}

pub(crate) fn encoded(text: &str) -> Value {
    json!(STANDARD.encode(text))
}

pub(crate) fn options(revision: &str) -> Options {
    Options {
        namespace: "istio-system".parse().unwrap(),
        revision: revision.parse().unwrap(),
        image: "localhost/sidecar-injector:test".parse().unwrap(),
        replicas: 2.try_into().unwrap(),
        failure_policy: FailurePolicy::Fail,
        by_default: false,
        certificates: Certificates::SelfSigned,
        platform: Platform::Kubernetes,
        validating_policy: false,
        texts: Texts {
            config: BUILTIN_CONFIG.to_owned(),
            values: BUILTIN_VALUES.to_owned(),
            mesh: BUILTIN_MESH.to_owned(),
        },
    }
}

/// A running installation: its objects as applied, and what the cluster adds.
pub(crate) fn installation(options: &Options) -> Vec<Value> {
    let mut all = objects(options).unwrap();
    let control_plane = json!({"name": "istiod", "namespace": options.namespace.as_str()});
    all.push(json!({"apiVersion": "v1", "kind": "Service", "metadata": control_plane}));
    let name = sidecar_injector::manifests::Names::new(&options.revision).injector();
    let namespace = options.namespace.as_str();
    let issued = IssuedCert::new(&format!("{name}.{namespace}.svc"), -10, 80);
    for object in &mut all {
        match object["kind"].as_str().unwrap() {
            "MutatingWebhookConfiguration" => {
                object["metadata"]["creationTimestamp"] = json!("2026-05-01T00:00:00Z");
                for webhook in object["webhooks"].as_array_mut().unwrap() {
                    webhook["clientConfig"]["caBundle"] = encoded(&issued.ca);
                }
            }
            "Deployment" => {
                // The autoscaler's.
                object["spec"]["replicas"] = json!(2);
                object["status"] = json!({"availableReplicas": 2, "replicas": 2});
            }
            _ => {}
        }
    }
    let names = sidecar_injector::manifests::Names::new(&options.revision);
    let secret = match options.certificates {
        Certificates::CertManager => names.managed_secret(),
        Certificates::SelfSigned => names.secret(),
    };
    all.push(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": namespace},
        "data": {"ca.crt": encoded(&issued.ca), "tls.crt": encoded(&issued.leaf)},
    }));
    all.push(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{name}-x"), "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
        "ports": [{"name": "https-webhook", "port": 15017}],
    }));
    let deployment = all.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let template = deployment["spec"]["template"].clone();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!(format!("{name}-1"));
    pod["metadata"]["namespace"] = json!(namespace);
    all.push(pod);
    all
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// A pod of a Deployment, not injected.
pub(crate) fn plain_pod(namespace: &str, workload: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{workload}-5d4f-a"), "generateName": format!("{workload}-5d4f-"), "namespace": namespace,
            "creationTimestamp": "2026-05-20T00:00:00Z", "labels": {"app": workload, "pod-template-hash": "5d4f"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{workload}-5d4f"), "controller": true,
            }],
        },
        "spec": {"containers": [{"name": workload, "image": "example.com/app:1"}]},
        "status": {"phase": "Running"},
    })
}

pub(crate) fn cluster() -> Vec<Value> {
    let mut all = installation(&options(""));
    all.push(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubernetes", "namespace": "default"}}));
    all.push(namespace("kube-system", &json!({})));
    all.push(namespace("istio-system", &json!({})));
    all.push(namespace("shop", &json!({"istio-injection": "enabled"})));
    all.push(namespace("plain", &json!({})));
    all.push(plain_pod("plain", "db"));
    let mut injected = plain_pod("shop", "web");
    injected["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "istio-proxy", "image": "proxy:1"}));
    injected["metadata"]["annotations"] =
        json!({"sidecar.istio.io/status": "{\"containers\":[\"istio-proxy\"]}"});
    all.push(injected);
    let mut done = plain_pod("shop", "old-job");
    done["status"]["phase"] = json!("Succeeded");
    all.push(done);
    all.push(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "kube-apiserver-a", "namespace": "kube-system", "labels": {"component": "kube-apiserver"}},
        "spec": {"hostNetwork": true, "containers": [{
            "name": "kube-apiserver", "image": "kube-apiserver:1",
            "command": ["kube-apiserver", "--enable-admission-plugins=NodeRestriction"],
            "env": [
                {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:80"},
                {"name": "NO_PROXY", "value": "127.0.0.1,localhost, .svc,10.0.0.0/8"},
            ],
        }]},
    }));
    all.push(json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-5d4f-a"}, "message": "Started container web",
    }));
    all
}

#[test]
fn a_healthy_cluster_has_no_finding() {
    let diagnosis = diagnose(&cluster(), &[]);
    assert_eq!(diagnosis.findings, []);
    assert_eq!(diagnosis.unchecked, Vec::<String>::new());
    assert_eq!(problems(&diagnose(&cluster(), &["shop"])), []);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": cluster()});
    assert_eq!(diagnose(&[list], &[]), diagnosis);
}

#[test]
fn two_revisions_side_by_side_are_healthy() {
    let mut all = cluster();
    all.extend(installation(&options("canary")).into_iter().filter(|object| object["kind"] != "Namespace"));
    all.push(namespace("beta", &json!({"istio.io/rev": "canary"})));
    assert_eq!(diagnose(&all, &[]).findings, []);
}
