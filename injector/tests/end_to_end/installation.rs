//! An installation of a revision of its own, in namespaces of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment};

use crate::api::{Rejected, Response, name};
use crate::control_plane::Cluster;

/// What controllers and kubelets would act on; they are validated, and not stored.
const NOT_STORED: [&str; 2] = ["Deployment", "HorizontalPodAutoscaler"];

pub(crate) struct Installation<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) revision: String,
    pub(crate) is_default: bool,
    pub(crate) namespace: String,
    pub(crate) objects: Vec<Value>,
    made: Vec<Value>,
}

/// The objects that `manifests` prints.
pub(crate) fn manifests(arguments: &[&str]) -> Vec<Value> {
    let all = ["sidecar-injector", "manifests"].iter().chain(arguments).map(Into::into);
    let output = cli::run(all, &Environment::default()).unwrap_or_else(|failure| panic!("{failure}"));
    let documents = sidecar_injector::yaml::read_documents(output.text.as_bytes()).expect("YAML");
    documents.into_iter().map(|document| document.value).collect()
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

impl<'c> Installation<'c> {
    pub(crate) fn new(cluster: &'c Cluster, flags: &[&str]) -> Self {
        let mut installation = Self::with_flags(cluster, flags);
        for object in installation.objects.clone() {
            if !NOT_STORED.contains(&object["kind"].as_str().unwrap_or_default())
                && object["kind"] != "Namespace"
            {
                installation.apply(&object);
            }
        }
        installation
    }

    /// Only its namespace: the test makes the objects, which end with it. In a control plane of our own they
    /// are those of the default revision, which has the most webhooks.
    pub(crate) fn without_objects(cluster: &'c Cluster) -> Self {
        let mut installation = Self::with_flags(cluster, &[]);
        if cluster.is_own() {
            installation.is_default = true;
            installation.objects = manifests(&["--namespace", &installation.namespace, "--replace-istiod"]);
        }
        let stored = |object: &&Value| {
            !NOT_STORED.contains(&object["kind"].as_str().unwrap_or_default())
                && object["kind"] != "Namespace"
        };
        let objects: Vec<Value> = installation.objects.iter().filter(stored).cloned().collect();
        installation.made.extend(objects);
        installation
    }

    /// The flags of `manifests` that choose its namespace and revision.
    pub(crate) fn own_flags(&self) -> Vec<&str> {
        let revision = ["--revision", &self.revision];
        let own: &[&str] = if self.is_default { &["--replace-istiod"] } else { &revision };
        [&["--namespace", self.namespace.as_str()], own].concat()
    }

    fn with_flags(cluster: &'c Cluster, flags: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let revision = format!("e2e-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let own = revision.clone();
        let objects = manifests(&[&["--namespace", &own, "--revision", &revision], flags].concat());
        let made = Vec::new();
        let mut installation =
            Self { cluster, revision, is_default: false, namespace: own.clone(), objects, made };
        installation.namespace(&own, &json!({}));
        installation
    }

    /// The name of most objects.
    pub(crate) fn name(&self) -> String {
        if self.is_default {
            return "istio-sidecar-injector".to_owned();
        }
        format!("istio-sidecar-injector-{}", self.revision)
    }

    pub(crate) fn object(&self, kind: &str) -> &Value {
        self.objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
    }

    /// Makes a namespace that ends with the test, with the ServiceAccount that a controller makes.
    pub(crate) fn namespace(&mut self, own: &str, labels: &Value) {
        self.apply(&namespace(own, labels));
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": own}});
        match self.cluster.api.create(&account) {
            Ok(_) | Err(Rejected { code: 409, .. }) => {}
            Err(rejected) => panic!("{rejected:?}"),
        }
    }

    /// Makes a namespace whose pods are injected; its name.
    pub(crate) fn injected_namespace(&mut self, suffix: &str) -> String {
        let own = format!("{}-{suffix}", self.revision);
        let label = if self.is_default {
            json!({"istio-injection": "enabled"})
        } else {
            json!({"istio.io/rev": self.revision})
        };
        self.namespace(&own, &label);
        own
    }

    /// Applies an object that ends with the test.
    pub(crate) fn apply(&mut self, object: &Value) {
        let applied = self.cluster.api.apply(object, "");
        applied.unwrap_or_else(|rejected| panic!("{} {}: {rejected:?}", object["kind"], name(object)));
        self.made.push(object.clone());
    }

    /// A token of the injector's ServiceAccount.
    pub(crate) fn token(&self) -> String {
        self.token_of(&self.name())
    }

    pub(crate) fn token_of(&self, account: &str) -> String {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", self.namespace);
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let made = self.cluster.api.post(&path, &request).expect("a token");
        made["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// The name of the ServiceAccount, as the API server knows it.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name())
    }

    /// The arguments of the container.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let arguments = self.object("Deployment").pointer("/spec/template/spec/containers/0/args");
        let arguments = arguments.and_then(Value::as_array).expect("arguments").iter();
        let filled =
            |argument: &Value| argument.as_str().expect("text").replace("$(POD_NAMESPACE)", &self.namespace);
        arguments.map(filled).collect()
    }

    pub(crate) fn hooks(&self) -> Value {
        self.cluster
            .api
            .get(&crate::api::path(self.object("MutatingWebhookConfiguration")))
            .expect("the configuration")
    }

    pub(crate) fn ca_bundles(&self) -> Vec<String> {
        let hooks = self.hooks()["webhooks"].as_array().cloned().unwrap_or_default();
        let bundle = |hook: &Value| hook["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned();
        hooks.iter().map(bundle).collect()
    }

    /// A pod, created as a dry run.
    pub(crate) fn create_pod(&self, namespace: &str) -> Response {
        self.cluster.api.dry_run(&pod(namespace))
    }

    /// Waits until pods are injected: the API server learns of the configuration, the caBundle and the
    /// endpoints in its own time.
    pub(crate) fn until_injecting(&self, namespace: &str) {
        let mut last = String::new();
        for _ in 0..1200 {
            match self.create_pod(namespace) {
                Ok(pod) if is_injected(&pod) => return,
                other => last = format!("{other:?}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("a minute has passed, and pods of {namespace} are not injected: {last}");
    }
}

impl Drop for Installation<'_> {
    fn drop(&mut self) {
        let api = &self.cluster.api;
        for object in self.made.iter().rev() {
            api.delete(object);
            // Without a namespace controller nothing else ends it.
            if object["kind"] == "Namespace"
                && self.cluster.is_own()
                && let Ok(mut namespace) = api.get(&crate::api::path(object))
            {
                namespace["spec"]["finalizers"] = json!([]);
                let _ = api.put(&format!("{}/finalize", crate::api::path(object)), &namespace);
            }
        }
    }
}

pub(crate) fn pod(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "web-", "namespace": namespace},
        "spec": {"containers": [{"name": "web", "image": "localhost/web:1"}]},
    })
}

pub(crate) fn containers(pod: &Value) -> Vec<&str> {
    let lists = ["initContainers", "containers"].iter().filter_map(|list| pod["spec"][list].as_array());
    lists.flatten().filter_map(|container| container["name"].as_str()).collect()
}

pub(crate) fn is_injected(pod: &Value) -> bool {
    containers(pod).contains(&"istio-proxy")
}
