//! The protocol of the agent's socket: the plugin asks for one pod, the agent responds. One JSON object each
//! way, then the end of the stream.

mod client;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use client::{Failure, ask, connects};

use crate::capture::OPTION_VARIABLES;
use crate::environment::PodName;
use crate::pod::{DISABLE_ENVOY, Pod};

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// Size of the largest message, in bytes: annotations alone may have 256 KiB.
pub const LARGEST: usize = 1 << 20;

/// The annotation of a mirror pod: the uid that the node has given to the static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The socket of the run directory.
#[must_use]
pub fn socket(run_dir: &Path) -> PathBuf {
    run_dir.join("agent.sock")
}

/// What the plugin asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// [`VERSION`].
    pub version: u32,
    /// The pod's namespace.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// The uid of the pod; empty if the runtime does not say.
    pub uid: String,
    /// Whether the API server is to be asked even if the agent knows the pod.
    pub refresh: bool,
    /// Timeout of the API server.
    pub wait_ms: u64,
}

/// The response of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Response {
    /// The pod.
    Pod(Box<KnownPod>),
    /// The API server knows no such pod.
    NotFound,
    /// Whether there is such a pod is not known: why.
    Unknown(String),
}

/// A pod, as the API server has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownPod {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// The uid of the pod.
    pub uid: String,
    /// What is decided on.
    pub pod: Pod,
}

impl KnownPod {
    /// Whether it is the pod with this uid. That of a static pod is the node's own, which its mirror names.
    #[must_use]
    pub fn has_uid(&self, uid: &str) -> bool {
        uid == self.uid || self.pod.annotations.get(MIRROR).is_some_and(|mirrored| mirrored == uid)
    }

    /// Whether it is the pod that the runtime names.
    fn is(&self, pod: &PodName) -> bool {
        self.namespace == pod.namespace
            && self.name == pod.name
            && (pod.uid.is_empty() || self.has_uid(&pod.uid))
    }
}

/// Whether an annotation is one that captures depend on: the agent keeps and passes no others.
#[must_use]
pub fn is_relevant_annotation(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    key == MIRROR
        || key == istio_iptables::config::CAPTURE_ANNOTATION
        || domain == "istio.io"
        || domain.ends_with(".istio.io")
}

/// Whether capture depends on a variable of the proxy's container: the agent keeps and passes no others.
#[must_use]
pub fn is_relevant_variable(name: &str) -> bool {
    name == DISABLE_ENVOY || OPTION_VARIABLES.iter().any(|(_, of_option)| *of_option == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(namespace: &str, name: &str, uid: &str) -> PodName {
        PodName { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
    }

    #[test]
    fn pod_is_known_by_namespace_name_and_uid() {
        let mut known = KnownPod {
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            uid: "u".to_owned(),
            pod: Pod::default(),
        };
        assert!(known.is(&named("a", "b", "u")) && known.is(&named("a", "b", "")));
        for other in [named("x", "b", "u"), named("a", "x", "u"), named("a", "b", "x")] {
            assert!(!known.is(&other), "{other:?}");
        }
        known.pod.annotations.insert(MIRROR.to_owned(), "hash".to_owned());
        assert!(known.is(&named("a", "b", "hash")) && known.is(&named("a", "b", "u")));
    }

    #[test]
    fn annotations_of_other_projects_are_not_handed_over() {
        for key in [
            "sidecar.istio.io/status",
            "istio.io/reroute-virtual-interfaces",
            "traffic.sidecar.istio.io/excludeInterfaces",
            "istio-iptables/capture-options",
            MIRROR,
        ] {
            assert!(is_relevant_annotation(key), "{key}");
        }
        for key in
            ["kubectl.kubernetes.io/last-applied-configuration", "notistio.io/x", "istio", "a/istio.io"]
        {
            assert!(!is_relevant_annotation(key), "{key}");
        }
    }

    #[test]
    fn messages_are_as_documented() {
        let query = Query {
            version: VERSION,
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            uid: "u".to_owned(),
            refresh: false,
            wait_ms: 450,
        };
        let text = r#"{"version":1,"namespace":"a","name":"b","uid":"u","refresh":false,"waitMs":450}"#;
        assert_eq!(serde_json::to_string(&query).unwrap(), text);
        assert_eq!(serde_json::to_string(&Response::NotFound).unwrap(), r#""notFound""#);
        assert_eq!(serde_json::to_string(&Response::Unknown("x".to_owned())).unwrap(), r#"{"unknown":"x"}"#);
    }
}
