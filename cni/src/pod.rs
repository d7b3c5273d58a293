//! Facts about a pod, from any source.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The container that sets up capture itself.
pub const INIT: &str = "istio-init";
/// The container that checks capture where a CNI plugin sets it up.
pub const VALIDATION: &str = "istio-validation";
/// The proxy's container.
pub const PROXY: &str = "istio-proxy";

/// The variable of the proxy that says whether it runs without Envoy.
pub const DISABLE_ENVOY: &str = "DISABLE_ENVOY";

/// The annotation in which injection says what it added.
pub const STATUS: &str = "sidecar.istio.io/status";

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// The labels of the pod; `None` if the source does not report them.
    pub labels: Option<BTreeMap<String, String>>,
    /// The annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// The containers of the pod; `None` if the source does not report them.
    pub containers: Option<Containers>,
}

/// The containers of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Containers {
    /// The names of all, init containers too.
    pub names: Vec<String>,
    /// Known facts about the proxy container.
    pub proxy: Proxy,
}

/// The proxy's container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxy {
    /// The arguments of the container.
    pub args: Vec<String>,
    /// The variables of the container with literal values.
    pub env: BTreeMap<String, String>,
    /// The variables of the container whose values are elsewhere (`valueFrom`).
    #[serde(default)]
    pub unresolved: BTreeSet<String>,
    /// Whether it has variables of unknown names (`envFrom`).
    #[serde(default)]
    pub has_env_from: bool,
    /// `securityContext.runAsUser`, of the container or else of the pod.
    pub uid: Option<u32>,
    /// `securityContext.runAsGroup`, of the container or else of the pod.
    pub gid: Option<u32>,
}

/// What injection says that it added: the value of [`STATUS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    init_containers: Option<Vec<String>>,
    containers: Option<Vec<String>>,
}

impl Status {
    /// Parses the annotation; `None` if it is not such an object.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // Serde reads a list as an object, too.
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
        serde_json::from_value(object.into()).ok()
    }

    /// Whether injection added the container of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        [&self.init_containers, &self.containers].into_iter().flatten().flatten().any(|one| one == name)
    }
}
