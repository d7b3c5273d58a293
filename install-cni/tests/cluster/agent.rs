//! The agent as kubelet starts it in a pod of the DaemonSet: arguments and variables of the manifest, and a
//! token of its service account where pods have it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use istio_cni::install::platform::PLATFORMS;
use serde_json::{Value, json};
use sidecar_injector::manifests::node_agent::{self, NodeAgent, Settings};

use crate::api::path;
use crate::control_plane::Cluster;
use crate::node::{Node, injected};

/// The node that the agent runs on.
pub(crate) const NODE: &str = "node-1";

/// The objects of an installation in a namespace of its own, and what kubelet mounts into the agent's pod.
pub(crate) struct Installation<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) namespace: String,
    pub(crate) objects: Vec<Value>,
    mounted: tempfile::TempDir,
    made: Vec<Value>,
}

impl<'c> Installation<'c> {
    /// With the default settings.
    pub(crate) fn new(cluster: &'c Cluster) -> Self {
        Self::with(cluster, &json!({}))
    }

    /// All objects are applied, and a token is mounted.
    pub(crate) fn with(cluster: &'c Cluster, settings: &Value) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("agents-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let options = NodeAgent {
            namespace: namespace.parse().unwrap(),
            image: "localhost/istio-cni:1".parse().unwrap(),
            platform: PLATFORMS[0],
            settings: Settings::new(settings, &PLATFORMS[0]).unwrap(),
        };
        let objects = node_agent::objects(&options).unwrap();
        let mounted = tempfile::tempdir().unwrap();
        let mut installation =
            Self { cluster, namespace, objects: objects.clone(), mounted, made: Vec::new() };
        let own = installation.namespace.clone();
        for namespace in [own.as_str(), "default"] {
            installation
                .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
            // A controller makes it otherwise.
            let metadata = json!({"name": "default", "namespace": namespace});
            installation.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
        }
        objects.iter().for_each(|object| installation.apply(object));
        let pod = installation.agent_pod("first");
        installation.mount_token(&pod);
        installation
    }

    pub(crate) fn object(&self, kind: &str) -> &Value {
        self.objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
    }

    /// Applies an object that ends with the test.
    pub(crate) fn apply(&mut self, object: &Value) {
        let applied = self.cluster.api.apply(object, "");
        applied.unwrap_or_else(|rejected| panic!("{object:#}: {rejected:?}"));
        self.made.push(object.clone());
    }

    /// The name of the agent's service account, as the API server knows it.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, node_agent::NAME)
    }

    /// A pod of the DaemonSet, as its controller makes it.
    pub(crate) fn agent_pod_object(&self, name: &str) -> Value {
        let template = &self.object("DaemonSet")["spec"]["template"];
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(format!("{}-{name}", node_agent::NAME));
        pod["metadata"]["namespace"] = json!(self.namespace);
        pod["spec"]["nodeName"] = json!(NODE);
        pod
    }

    /// Makes a pod of the DaemonSet.
    pub(crate) fn agent_pod(&mut self, name: &str) -> Value {
        let pod = self.agent_pod_object(name);
        let made = self.cluster.api.create(&pod).unwrap_or_else(|rejected| panic!("{rejected:?}"));
        self.made.push(pod);
        made
    }

    /// Mounts a token that is bound to a pod, and the CA, in place of those before, as kubelet does.
    pub(crate) fn mount_token(&self, pod: &Value) {
        let path =
            format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", self.namespace, node_agent::NAME);
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "expirationSeconds": 3607}});
        let made = self.cluster.api.post(&path, &request).unwrap();
        let authority = self.cluster.server["certificate-authority-data"].as_str().unwrap();
        let authority = base64::engine::general_purpose::STANDARD.decode(authority).unwrap();
        let name = pod["metadata"]["name"].as_str().unwrap();
        let version = self.mounted.path().join(format!("..{name}"));
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("token"), made["status"]["token"].as_str().unwrap()).unwrap();
        std::fs::write(version.join("ca.crt"), authority).unwrap();
        std::fs::write(version.join("namespace"), &self.namespace).unwrap();
        // One link is replaced, and with it all files.
        let link = self.mounted.path().join("..data_tmp");
        std::os::unix::fs::symlink(version, &link).unwrap();
        std::fs::rename(link, self.mounted.path().join("..data")).unwrap();
        for name in ["token", "ca.crt", "namespace"] {
            let file = self.mounted.path().join(name);
            if file.symlink_metadata().is_err() {
                std::os::unix::fs::symlink(format!("..data/{name}"), file).unwrap();
            }
        }
    }

    /// The agent, which listens.
    pub(crate) fn start(&self) -> Node {
        Node::start_by(|program| self.command(program))
    }

    /// In a mount namespace, with the token where pods have it.
    fn command(&self, program: &Path) -> Command {
        const SETUP: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io && \
            ln -s \"$0\" /run/secrets/kubernetes.io/serviceaccount && exec \"$@\"";
        assert_eq!(std::fs::canonicalize("/var/run").unwrap(), PathBuf::from("/run"));
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SETUP]).arg(self.mounted.path()).arg(program);
        // Where a test has other directories and another address.
        let replaced = ["--run-dir=", "--netns-dir=", "--results-dir=", "--listen="];
        let arguments = self.arguments();
        command
            .args(arguments.iter().filter(|argument| !replaced.iter().any(|own| argument.starts_with(own))));
        let url = self.cluster.server["server"].as_str().unwrap().trim_start_matches("https://");
        let (host, port) = url.split_once(':').unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path);
        command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
        command
    }

    /// As kubelet expands them.
    fn arguments(&self) -> Vec<String> {
        let mut variables: BTreeMap<String, String> =
            serde_json::from_value(self.object("ConfigMap")["data"].clone()).unwrap();
        variables.insert("NODE_NAME".to_owned(), NODE.to_owned());
        variables.insert("POD_NAMESPACE".to_owned(), self.namespace.clone());
        let all = self.object("DaemonSet")["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        let expanded = |argument: &Value| {
            variables.iter().fold(argument.as_str().unwrap().to_owned(), |text, (name, value)| {
                text.replace(&format!("$({name})"), value)
            })
        };
        all.unwrap().iter().map(expanded).collect()
    }

    /// Makes an injected pod on a node; its uid.
    pub(crate) fn pod(&mut self, name: &str, node: &str) -> String {
        let mut pod = injected(name, "");
        pod["spec"]["nodeName"] = json!(node);
        let metadata = pod["metadata"].as_object_mut().unwrap();
        metadata.remove("uid");
        metadata.remove("resourceVersion");
        let made = self.cluster.api.create(&pod).unwrap_or_else(|rejected| panic!("{rejected:?}"));
        self.made.push(pod);
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Makes the agent's Node object, with these taints and this container runtime.
    pub(crate) fn node(&mut self, taints: &Value, runtime: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"taints": taints}});
        // One of an earlier test.
        self.cluster.api.delete(&node);
        let mut made = self.cluster.api.create(&node).unwrap();
        self.made.push(node.clone());
        let texts =
            ["architecture", "bootID", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID"];
        let texts = texts.into_iter().chain(["operatingSystem", "osImage", "systemUUID"]);
        let mut info: serde_json::Map<_, _> = texts.map(|key| (key.to_owned(), json!("x"))).collect();
        info.insert("containerRuntimeVersion".to_owned(), json!(runtime));
        made["status"] = json!({"nodeInfo": info});
        self.cluster.api.put(&format!("{}/status", path(&node)), &made).unwrap();
    }

    /// The keys of the taints of the agent's Node object.
    pub(crate) fn taints(&self) -> Vec<String> {
        let node = self.cluster.api.get(&format!("/api/v1/nodes/{NODE}")).unwrap();
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
    }

    /// Deletes a pod at once.
    pub(crate) fn delete_pod(&self, name: &str) {
        self.cluster.api.delete(&injected(name, ""));
    }

    /// How often the agent has read a single pod.
    pub(crate) fn reads(&self) -> usize {
        self.cluster.audited(&self.user()).iter().filter(|entry| entry["verb"] == "get").count()
    }

    /// Waits until a pod is known by the watch.
    #[track_caller]
    pub(crate) fn until_watched(&self, node: &Node, name: &str, uid: &str) {
        crate::node::until(&format!("{name} is known"), || {
            let before = self.reads();
            node.captured(name, uid);
            // The audit log is written before the response.
            self.reads() == before
        });
    }
}

impl Drop for Installation<'_> {
    fn drop(&mut self) {
        for object in self.made.iter().rev() {
            // Namespaces go with the control plane.
            if object["kind"] != "Namespace" {
                self.cluster.api.delete(object);
            }
        }
    }
}
