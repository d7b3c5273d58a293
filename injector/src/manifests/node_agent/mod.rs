//! The objects of the node agent of `istio-cni`: a DaemonSet that installs the plugin on every node. It serves all
//! revisions, so its objects are an installation of their own.

use istio_cni::install::platform::Platform;
use istio_cni::netconf::RUN_DIR;
use serde_json::{Map, Value, json};

use super::dns::Namespace;
use super::image::Image;
use super::{render, uninstalled};

/// Name of the objects. Istio's agent is called `istio-cni-node`, its other objects `istio-cni`. Pods whose name begins
/// with `istio-cni-node-` in the agent's namespace are those that the plugin never captures.
pub const NAME: &str = "istio-cni-node-agent";
/// The label of the pods of both agents, this one's and Istio's.
pub const POD_LABEL: (&str, &str) = ("k8s-app", "istio-cni-node");
/// Where probes are served.
pub const PORT: u16 = 8000;
/// The namespace of the cluster's own pods.
const SYSTEM: &str = "kube-system";
const EXCLUDED: &str = "EXCLUDE_NAMESPACES";

/// Options of `install-cni` that the ConfigMap sets: option, variable, default.
pub const SETTINGS: [(&str, &str, &str); 7] = [
    ("backend", "BACKEND", "auto"),
    ("capture", "CAPTURE", "{}"),
    ("deadline-ms", "DEADLINE_MS", "5000"),
    ("exclude-namespaces", EXCLUDED, SYSTEM),
    ("log-level", "LOG_LEVEL", "info"),
    ("on-unknown", "ON_UNKNOWN", "fail"),
    ("replace-istio", "REPLACE_ISTIO", "false"),
];

/// Everything that the objects depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAgent {
    /// Where the agents run.
    pub namespace: Namespace,
    /// Their image.
    pub image: Image,
    /// Whose directories they write to.
    pub platform: Platform,
}

/// Every object, in the order in which to apply them.
///
/// # Errors
///
/// A template that cannot be rendered, which a test excludes.
pub fn objects(options: &NodeAgent) -> Result<Vec<Value>, String> {
    render("node agent", include_str!("installation.yaml"), &data(options))
}

/// What the template reads.
fn data(options: &NodeAgent) -> Value {
    let namespace = options.namespace.as_str();
    let mut settings: Map<String, Value> =
        SETTINGS.map(|(_, variable, value)| (variable.to_owned(), json!(value))).into_iter().collect();
    if namespace != SYSTEM {
        // The injector is there, too, and starts without the plugin knowing its pods.
        settings.insert(EXCLUDED.to_owned(), json!(format!("{SYSTEM},{namespace}")));
    }
    json!({
        "agent": NAME,
        "namespace": namespace,
        "inCluster": format!("{NAME}-{namespace}"),
        "image": options.image.as_str(),
        "platform": options.platform.name,
        "openshift": options.platform.name == "openshift",
        "binDir": options.platform.bin_dir,
        "netDir": options.platform.net_dir,
        "runDir": RUN_DIR,
        "port": PORT,
        "settings": settings,
        "variables": variables(),
    })
}

/// The variable of each option that the ConfigMap sets.
#[must_use]
pub fn variables() -> Value {
    SETTINGS
        .map(|(option, variable, _)| (option.to_owned(), json!(variable)))
        .into_iter()
        .collect::<Map<_, _>>()
        .into()
}

/// The platform's name for users, whose default is Kubernetes.
#[must_use]
pub fn platform_name(platform: &Platform) -> &'static str {
    if platform.name == "default" { "kubernetes" } else { platform.name }
}

/// What an uninstallation deletes, the DaemonSet first. What the agents have written on the nodes stays, unless they ran with
/// `--uninstall`.
///
/// # Errors
///
/// As [`objects`].
pub fn uninstall(options: &NodeAgent) -> Result<Vec<Value>, String> {
    Ok(objects(options)?.into_iter().rev().map(uninstalled).collect())
}
