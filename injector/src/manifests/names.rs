//! Names, labels and ports that several objects share.

use serde_json::{Map, Value, json};

use super::dns::InstalledRevision;
use super::options::Options;
use crate::decide::selectors::REVISION;

/// Where the webhook is served.
pub const HTTPS_PORT: u16 = 15017;
/// Where health and metrics are served.
pub const MONITORING_PORT: u16 = 15014;

/// The names of an installation's objects, as users know them: with the revision at the end, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    suffix: String,
    revision: String,
}

impl Names {
    /// The names for a revision.
    #[must_use]
    pub fn new(revision: &InstalledRevision) -> Self {
        let suffix = match revision.as_str() {
            "" => String::new(),
            name => format!("-{name}"),
        };
        Self { suffix, revision: revision.label().to_owned() }
    }

    /// Deployment, Service, ServiceAccount, ConfigMap, MutatingWebhookConfiguration and the rest.
    #[must_use]
    pub fn injector(&self) -> String {
        format!("istio-sidecar-injector{}", self.suffix)
    }

    /// The ConfigMap with the mesh config.
    #[must_use]
    pub fn mesh(&self) -> String {
        format!("istio{}", self.suffix)
    }

    /// The Secret with the certificate that the injector makes: it belongs to the Service.
    #[must_use]
    pub fn secret(&self) -> String {
        format!("{}-tls", self.injector())
    }

    /// The Secret with cert-manager's: another one, so that neither finds what the other has left.
    #[must_use]
    pub fn managed_secret(&self) -> String {
        format!("{}-cert-manager", self.injector())
    }

    /// What the cluster knows only once: with the namespace, so that two installations do not share it.
    #[must_use]
    pub fn in_cluster(&self, options: &Options) -> String {
        format!("{}-{}", self.injector(), options.namespace.as_str())
    }

    /// Metadata of an object in the installation's namespace.
    pub(super) fn metadata(&self, options: &Options, name: &str) -> Value {
        json!({"name": name, "namespace": options.namespace.as_str(), "labels": self.labels()})
    }

    /// Metadata of an object of the cluster.
    pub(super) fn cluster_metadata(&self, name: &str) -> Value {
        json!({"name": name, "labels": self.labels()})
    }

    /// What finds the pods of this revision, and no others.
    pub(super) fn labels(&self) -> Map<String, Value> {
        let mut labels = Map::new();
        labels.insert("app".to_owned(), json!("istio-sidecar-injector"));
        labels.insert("istio".to_owned(), json!("sidecar-injector"));
        labels.insert(REVISION.to_owned(), json!(self.revision));
        labels
    }
}
