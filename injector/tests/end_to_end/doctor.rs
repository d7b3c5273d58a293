//! `doctor` on a healthy installation, and after each of many breakages, one at a time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sidecar_injector::cli::{self, Environment};

use crate::api::{path, until};
use crate::control_plane::{Cluster, kubeconfig_of};
use crate::installation::{Installation, pod};
use crate::replica::Replica;

/// What is broken, and the finding.
enum Breakage {
    Edit(&'static str, fn(&mut Value)),
    Delete(&'static str),
    /// Of the endpoints that the test itself made.
    NoEndpoints,
    /// A namespace with these labels.
    Labels(&'static [(&'static str, &'static str)]),
    /// A pod of a namespace without labels.
    Pod(fn(&mut Value)),
    /// What a controller reports that created a pod while there were no endpoints.
    FailedCreate,
    /// What a controller reports whose pod violates Pod Security, or a LimitRange.
    Rejected {
        limit: bool,
    },
}

use Breakage::{Delete, Edit, FailedCreate, Labels, NoEndpoints, Pod, Rejected};

const BREAKAGES: &[(&str, Breakage)] = &[
    (
        "ca-empty",
        Edit("MutatingWebhookConfiguration", |object| hooks(object, "/clientConfig/caBundle", &json!(""))),
    ),
    (
        "ca-mismatch",
        Edit("MutatingWebhookConfiguration", |object| {
            let other = certificate("other", false).0;
            hooks(object, "/clientConfig/caBundle", &json!(STANDARD.encode(other)));
        }),
    ),
    (
        "failure-policy-ignore",
        Edit("MutatingWebhookConfiguration", |object| hooks(object, "/failurePolicy", &json!("Ignore"))),
    ),
    (
        "timeout-short",
        Edit("MutatingWebhookConfiguration", |object| hooks(object, "/timeoutSeconds", &json!(1))),
    ),
    ("certificate-names", Edit("Secret", |object| serve(object, &certificate("other.example.com", false)))),
    ("certificate-expired", Edit("Secret", |object| serve(object, &certificate("other", true)))),
    ("service-missing", Delete("Service")),
    ("service-selector", Edit("Service", |object| object["spec"]["selector"] = json!({"app": "other"}))),
    ("service-port", Edit("Service", |object| object["spec"]["ports"][0]["targetPort"] = json!(9))),
    ("no-endpoints", NoEndpoints),
    (
        "network-policy",
        Edit("NetworkPolicy", |object| object["spec"]["ingress"] = json!([{"ports": [{"port": 9}]}])),
    ),
    ("role-missing", Delete("RoleBinding")),
    ("config-missing", Delete("ConfigMap")),
    ("config-broken", Edit("ConfigMap", |object| object["data"]["config"] = json!("templates: ["))),
    (
        "policy-unknown",
        Edit("ConfigMap", |object| {
            let config = object["data"]["config"]
                .as_str()
                .expect("text")
                .replace("policy: enabled", "policy: nonsense");
            object["data"]["config"] = json!(config);
        }),
    ),
    ("unknown-revision", Labels(&[("istio.io/rev", "no-such-revision")])),
    ("both-labels", Labels(&[("istio.io/rev", "no-such-revision"), ("istio-injection", "disabled")])),
    ("label-value", Labels(&[("istio-injection", "Enabled")])),
    (
        "request-ignored",
        Pod(|pod| pod["metadata"]["annotations"] = json!({"sidecar.istio.io/inject": "true"})),
    ),
    (
        "image-auto",
        Pod(|pod| {
            let containers = pod["spec"]["containers"].as_array_mut().expect("containers");
            containers.push(json!({"name": "istio-proxy", "image": "auto"}));
        }),
    ),
    ("call-failed", FailedCreate),
    (
        "pod-security",
        Labels(&[("istio.io/rev", "REVISION"), ("pod-security.kubernetes.io/enforce", "baseline")]),
    ),
    ("pod-denied", Rejected { limit: false }),
    ("pod-denied", Rejected { limit: true }),
    (
        "webhook-rules",
        Edit("MutatingWebhookConfiguration", |object| {
            hooks(object, "/rules/0/operations", &json!(["UPDATE"]))
        }),
    ),
    (
        "webhook-path",
        Edit("MutatingWebhookConfiguration", |object| {
            hooks(object, "/clientConfig/service/path", &json!("/other"))
        }),
    ),
    (
        "match-conditions",
        Edit("MutatingWebhookConfiguration", |object| {
            for hook in object["webhooks"].as_array_mut().expect("webhooks") {
                hook["matchConditions"] = json!([{"name": "never", "expression": "false"}]);
            }
        }),
    ),
];

fn hooks(object: &mut Value, pointer: &str, value: &Value) {
    for hook in object["webhooks"].as_array_mut().expect("webhooks") {
        *hook.pointer_mut(pointer).expect("a field") = value.clone();
    }
}

/// Certificate and key, in PEM.
fn certificate(name: &str, expired: bool) -> (String, String) {
    let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    if expired {
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
    }
    let key = rcgen::KeyPair::generate().expect("a key");
    (parameters.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

fn serve(secret: &mut Value, (certificate, key): &(String, String)) {
    secret["data"]["tls.crt"] = json!(STANDARD.encode(certificate));
    secret["data"]["tls.key"] = json!(STANDARD.encode(key));
}

struct Setup<'c> {
    installation: Installation<'c>,
    /// The injected namespace, and one without labels.
    shop: String,
    plain: String,
    endpoints: Value,
}

/// The pod of the Deployment: not scheduled anywhere.
fn injector_pod(installation: &Installation<'_>) -> Value {
    let mut pod = installation.object("Deployment")["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("injector");
    pod["metadata"]["namespace"] = json!(installation.namespace);
    pod["spec"]["schedulingGates"] = json!([{"name": "end-to-end.test/never"}]);
    pod
}

impl<'c> Setup<'c> {
    fn new(cluster: &'c Cluster) -> Self {
        let mut installation = Installation::new(cluster, &[]);
        let shop = installation.injected_namespace("shop");
        let plain = format!("{}-plain", installation.revision);
        installation.namespace(&plain, &json!({}));
        // Of a control plane: a cluster with a controller manager has other ConfigMaps in every namespace.
        installation.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "istio-ca-root-cert", "namespace": shop}, "data": {}}));
        let replica = Replica::start(&installation, 1);
        installation.until_injecting(&shop);
        // From here on nothing repairs what is broken.
        let endpoints = replica.endpoints().clone();
        drop(replica);
        installation.apply(&endpoints);
        installation.apply(&injector_pod(&installation));
        Self { installation, shop, plain, endpoints }
    }

    /// The problems of objects of this run.
    fn problems(&self) -> Vec<String> {
        let cluster = self.installation.cluster;
        let kubeconfig = cluster.kubeconfig.to_str().expect("a path");
        let broken = self.broken();
        let mut arguments = vec![
            "sidecar-injector",
            "doctor",
            "--kubeconfig",
            kubeconfig,
            "--istio-namespace",
            &self.installation.namespace,
            "--namespace",
            &self.plain,
            "--namespace",
            &self.shop,
            "-o",
            "json",
        ];
        // It is an error to ask about a namespace that does not exist.
        if cluster.api.get(&format!("/api/v1/namespaces/{broken}")).is_ok() {
            arguments.extend(["--namespace", &broken]);
        }
        let output = cli::run(arguments.iter().map(Into::into), &Environment::default());
        let output = output.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(output.notes, Vec::<String>::new());
        let diagnosis: Value = serde_json::from_str(&output.text).expect("JSON");
        let findings = diagnosis["findings"].as_array().expect("a list").iter();
        let of_this_run = |finding: &&Value| {
            finding["object"].as_str().is_some_and(|object| object.contains(&self.installation.revision))
        };
        let own = findings.filter(of_this_run);
        // The namespace without labels is not selected: that is one of the breakages.
        let named = own.map(|finding| finding["problem"].as_str().expect("a slug").to_owned());
        named.filter(|problem| problem != "not-selected").collect()
    }

    fn broken(&self) -> String {
        format!("{}-broken", self.installation.revision)
    }

    fn current(&self, kind: &str) -> Value {
        let cluster = self.installation.cluster;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": format!("{}-tls", self.installation.name()), "namespace": self.installation.namespace}});
        let object = if kind == "Secret" { &secret } else { self.installation.object(kind) };
        let mut current = cluster.api.get(&path(object)).expect("the object");
        current["kind"] = object["kind"].clone();
        current["apiVersion"] = object["apiVersion"].clone();
        current
    }

    fn put(&self, object: &Value) {
        let cluster = self.installation.cluster;
        let mut object = object.clone();
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        for key in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"] {
            metadata.remove(key);
        }
        let put = match cluster.api.get(&path(&object)) {
            Ok(current) => {
                object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
                cluster.api.replace(&object)
            }
            Err(_) => cluster.api.create(&object),
        };
        put.unwrap_or_else(|rejected| panic!("{}: {rejected:?}", path(&object)));
    }

    /// Breaks one thing, examines, and mends it.
    fn with(&mut self, breakage: &Breakage) -> Vec<String> {
        let api = &self.installation.cluster.api;
        match breakage {
            Edit(kind, edit) => {
                let healthy = self.current(kind);
                let mut broken = healthy.clone();
                edit(&mut broken);
                self.put(&broken);
                let found = self.problems();
                self.put(&healthy);
                found
            }
            Delete(kind) => {
                let healthy = self.current(kind);
                api.delete(&healthy);
                let found = self.problems();
                self.put(&healthy);
                found
            }
            NoEndpoints => {
                api.delete(&self.endpoints);
                let found = self.problems();
                self.put(&self.endpoints);
                found
            }
            Labels(labels) => {
                let own = self.broken();
                let labels: Map<String, Value> = labels
                    .iter()
                    .map(|(key, value)| {
                        ((*key).to_owned(), json!(value.replace("REVISION", &self.installation.revision)))
                    })
                    .collect();
                self.installation.namespace(&own, &json!(labels));
                let found = self.problems();
                let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own}});
                let without = json!({"metadata": {"labels": {"istio.io/rev": null, "istio-injection": null, "pod-security.kubernetes.io/enforce": null}}});
                api.merge(&object, &without).expect("mended");
                found
            }
            Pod(edit) => {
                let mut pod = pod(&self.plain);
                pod["metadata"]["name"] = json!("broken");
                pod["spec"]["schedulingGates"] = json!([{"name": "end-to-end.test/never"}]);
                edit(&mut pod);
                self.with_added(&pod)
            }
            FailedCreate => {
                let message = self.failure();
                self.with_failed_create(&self.shop, &message, pod(&self.shop))
            }
            Rejected { limit } => self.with_rejected_pods(*limit),
        }
    }

    /// Breaks a namespace so that it rejects the pods of a workload.
    fn with_rejected_pods(&mut self, limit: bool) -> Vec<String> {
        let own = self.broken();
        let level = if limit { "privileged" } else { "baseline" };
        self.installation.namespace(&own, &json!({"pod-security.kubernetes.io/enforce": level}));
        let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small", "namespace": own},
            "spec": {"limits": [{"type": "Container", "max": {"memory": "64Mi"}}]}});
        if limit {
            self.put(&range);
        }
        let pod = rejected(&own, limit);
        let message = self.rejection(&pod);
        let found = self.with_failed_create(&own, &message, pod);
        self.installation.cluster.api.delete(&range);
        found
    }

    /// The message of the API server for a pod that exceeds what its namespace allows.
    fn rejection(&self, pod: &Value) -> String {
        let api = &self.installation.cluster.api;
        let mut message = String::new();
        until("the pod is rejected", || match api.dry_run(pod) {
            Ok(_) => false,
            Err(rejected) => {
                message = rejected.message;
                true
            }
        });
        message
    }

    /// As a controller reports that it cannot create the pods of a ReplicaSet. Where there are controllers,
    /// they try: the pod must be one that cannot be created as long as this lasts.
    fn with_failed_create(&self, namespace: &str, message: &str, mut template: Value) -> Vec<String> {
        let labels = json!({"app": "web"});
        template["metadata"] = json!({"labels": labels});
        template["spec"]["schedulingGates"] = json!([{"name": "end-to-end.test/never"}]);
        let workload = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": namespace},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": template["metadata"], "spec": template["spec"]}}});
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": namespace},
            "involvedObject": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "namespace": namespace},
            "reason": "FailedCreate", "type": "Warning", "message": format!("Error creating: {message}"), "lastTimestamp": now(),
        });
        self.put(&event);
        let gone = self.problems();
        assert!(gone.is_empty(), "the workload does not exist, so its past does not count: {gone:?}");
        self.put(&workload);
        let found = self.problems();
        let api = &self.installation.cluster.api;
        [&workload, &event].into_iter().for_each(|object| api.delete(object));
        found
    }

    /// The problems while there is one more object.
    fn with_added(&self, object: &Value) -> Vec<String> {
        self.put(object);
        let found = self.problems();
        self.installation.cluster.api.delete(object);
        found
    }

    /// What the API server responds to a controller while nothing serves.
    fn failure(&self) -> String {
        let mut message = String::new();
        until("a call fails", || match self.installation.create_pod(&self.shop) {
            Ok(_) => false,
            Err(rejected) => {
                message = rejected.message;
                true
            }
        });
        message
    }
}

fn now() -> String {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    k8s_openapi::jiff::Timestamp::from_second(now.try_into().expect("seconds")).expect("a time").to_string()
}

/// A pod that a LimitRange, or else Pod Security `baseline`, does not allow.
fn rejected(namespace: &str, limit: bool) -> Value {
    let mut pod = pod(namespace);
    if limit {
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "1Gi"}});
    } else {
        let capabilities = json!({"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}});
        pod["spec"]["initContainers"] =
            json!([{"name": "istio-init", "image": "i", "securityContext": capabilities}]);
    }
    pod
}

pub(crate) fn each_breakage_has_its_finding(cluster: &Cluster) {
    let mut setup = Setup::new(cluster);
    assert_eq!(setup.problems(), Vec::<String>::new(), "a healthy installation");
    let mut missed = Vec::new();
    for (expected, breakage) in BREAKAGES {
        let found = setup.with(breakage);
        if !found.iter().any(|problem| problem == expected) {
            missed.push(format!("{expected}: found {found:?}"));
        }
        let after = setup.problems();
        assert!(after.is_empty(), "after {expected} was mended: {after:?}");
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// As a user with the role of `deploy/doctor-role.yaml`, and nothing else.
pub(crate) fn the_role_for_doctor_suffices(cluster: &Cluster) {
    let text = include_str!("../../../deploy/doctor-role.yaml");
    let mut role = sidecar_injector::yaml::read(text).expect("YAML");
    let mut installation = Installation::new(cluster, &[]);
    role["metadata"]["name"] = json!(format!("{}-doctor", installation.revision));
    installation.apply(&role);
    let metadata = json!({"name": role["metadata"]["name"]});
    let subject = json!({"kind": "ServiceAccount", "name": "default", "namespace": installation.namespace});
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]});
    installation.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": metadata, "roleRef": reference, "subjects": [subject]}));
    let shop = installation.injected_namespace("shop");
    // A workload that doctor looks up.
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": shop}, "reason": "FailedCreate",
        "involvedObject": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "namespace": shop},
        "message": "Error creating: no", "lastTimestamp": now(),
    });
    cluster.api.create(&event).expect("an event");
    let kubeconfig = tempfile::NamedTempFile::new().expect("a file");
    let token = kubeconfig_of(&cluster.server, &installation.token_of("default"));
    std::fs::write(kubeconfig.path(), token.to_string()).expect("written");
    let mut notes = Vec::new();
    // Bindings are in force some time after they were stored.
    until("everything but Secrets is read", || {
        let path = kubeconfig.path().to_str().expect("a path");
        let arguments =
            ["sidecar-injector", "doctor", "--kubeconfig", path, "-i", &installation.namespace, "-n", &shop];
        let output = cli::run(arguments.iter().map(Into::into), &Environment::default());
        notes = output.map_or_else(|failure| failure.problems, |output| output.notes);
        notes.len() == 1
    });
    assert!(notes[0].contains("secrets of namespace"), "{notes:?}");
}
