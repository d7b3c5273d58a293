//! The objects of the node agent of `istio-cni`: a DaemonSet that installs the plugin on every node. It
//! serves all revisions, so its objects are an installation of their own.

use istio_cni::install::options::{self, NETNS_DIR, RESULTS_DIR};
use istio_cni::install::platform::Platform;
use istio_cni::netconf::RUN_DIR;
use serde_json::{Map, Value, json};

use super::dns::Namespace;
use super::image::Image;
use super::render;

/// Name of the objects. Istio's agent is called `istio-cni-node`, its other objects `istio-cni`. Pods whose
/// name begins with `istio-cni-node-` in the agent's namespace are those that the plugin never captures.
pub const NAME: &str = "istio-cni-node-agent";
/// The label of the pods of both agents, this one's and Istio's.
pub const POD_LABEL: (&str, &str) = ("k8s-app", "istio-cni-node");
/// The address of the probes.
pub const PORT: u16 = 8000;
/// The namespace of the cluster's own pods.
const SYSTEM: &str = "kube-system";
const EXCLUDED: &str = "EXCLUDE_NAMESPACES";

/// Options of `install-cni` that the ConfigMap sets: option, variable, default.
pub const SETTINGS: [(&str, &str, &str); 16] = [
    ("backend", "BACKEND", "auto"),
    ("capture", "CAPTURE", "{}"),
    (options::CONF_NAME, "CNI_CONF_NAME", ""),
    ("deadline-ms", "DEADLINE_MS", "30000"),
    ("drop-in", "DROP_IN", "no"),
    ("exclude-namespaces", EXCLUDED, SYSTEM),
    ("guard", "GUARD", "repair"),
    ("log-level", "LOG_LEVEL", "info"),
    ("on-unknown", "ON_UNKNOWN", "fail"),
    ("pod-events", "POD_EVENTS", "true"),
    ("remove-taint", "REMOVE_TAINT", "false"),
    ("repair", "REPAIR", "repair"),
    (options::LABEL_KEY, "REPAIR_BROKEN_POD_LABEL_KEY", options::DEFAULT_LABEL.0),
    (options::LABEL_VALUE, "REPAIR_BROKEN_POD_LABEL_VALUE", options::DEFAULT_LABEL.1),
    ("replace-istio", "REPLACE_ISTIO", "false"),
    ("reset-escaped", "RESET_ESCAPED", "false"),
];

/// Everything that the objects depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAgent {
    /// The namespace of the agents.
    pub namespace: Namespace,
    /// The image of the agents.
    pub image: Image,
    /// Whose directories they write to.
    pub platform: Platform,
    /// Keys of the ConfigMap with another value than the default.
    pub settings: Settings,
}

/// Keys of the ConfigMap and their values, which the agent accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Map<String, Value>);

impl Settings {
    /// Reads values as `--set` gives them: what is not a text is JSON.
    ///
    /// # Errors
    ///
    /// The first key or value that is not accepted, and what is.
    pub fn new(given: &Value, platform: &Platform) -> Result<Self, String> {
        let mut settings = Map::new();
        for (key, value) in given.as_object().into_iter().flatten() {
            if !SETTINGS.iter().any(|(_, variable, _)| variable == key) {
                let known = SETTINGS.map(|(_, variable, _)| variable).join(", ");
                return Err(format!("{key:?} is not accepted with --cni, expected one of {known}"));
            }
            settings.insert(key.clone(), json!(as_read(value)));
        }
        let own = settings.iter().filter_map(|(key, value)| {
            let (option, ..) = SETTINGS.iter().find(|(_, variable, _)| variable == key)?;
            Some(format!("--{option}={}", value.as_str()?))
        });
        let fixed = ["--node-name=node".to_owned(), format!("--platform={}", platform.name)];
        let arguments: Vec<String> = fixed.into_iter().chain(own).collect();
        // The parser's messages name options; the caller gave keys of the ConfigMap.
        options::install(&arguments).map_err(|error| by_variable(&error.to_string()))?;
        Ok(Self(settings))
    }
}

/// The text that the agent reads: of a list, its items with a comma between them.
fn as_read(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(as_read).collect::<Vec<_>>().join(","),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// The parser's message, with the key of the ConfigMap in place of the agent's option.
fn by_variable(message: &str) -> String {
    let option = message.strip_prefix("--").and_then(|text| text.split_once(": "));
    let of_variable = option.and_then(|(name, problem)| {
        let (_, variable, _) = SETTINGS.iter().find(|(option, ..)| *option == name)?;
        Some(format!("{variable}: {problem}"))
    });
    of_variable.unwrap_or_else(|| message.to_owned())
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
    settings.extend(options.settings.0.clone());
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
        "netnsDir": NETNS_DIR,
        "resultsDir": RESULTS_DIR,
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

/// What an uninstallation deletes if it belongs to the installation, the DaemonSet first. What the agents
/// have written on the nodes stays, unless they ran with `--uninstall`.
///
/// # Errors
///
/// As [`objects`].
pub fn uninstall(options: &NodeAgent) -> Result<Vec<Value>, String> {
    Ok(objects(options)?.into_iter().rev().collect())
}
