//! Names that several objects share.

use super::dns::InstalledRevision;
use super::options::Options;

/// The names of an installation's objects, as users know them: with the revision at the end, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    suffix: String,
}

impl Names {
    /// The names for a revision.
    #[must_use]
    pub fn new(revision: &InstalledRevision) -> Self {
        let suffix = match revision.as_str() {
            "" => String::new(),
            name => format!("-{name}"),
        };
        Self { suffix }
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
    pub(crate) fn in_cluster(&self, options: &Options) -> String {
        format!("{}-{}", self.injector(), options.namespace.as_str())
    }
}
