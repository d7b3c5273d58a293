//! Options of an installation; a value that exists is valid.

use std::num::NonZeroU16;

use super::dns::{InstalledRevision, Namespace};
use super::image::Image;

/// Everything that the objects depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The namespace of the injector.
    pub namespace: Namespace,
    /// Which revision it serves.
    pub revision: InstalledRevision,
    /// The injector's image.
    pub image: Image,
    /// Minimum number of replicas.
    pub replicas: Replicas,
    /// What happens to pods while no replica responds.
    pub failure_policy: FailurePolicy,
    /// Whether namespaces and pods without any label are injected.
    pub by_default: bool,
    /// The source of the certificate.
    pub certificates: Certificates,
    /// The platform.
    pub platform: Platform,
    /// Whether pods that still have `image: auto` are rejected.
    pub validating_policy: bool,
    /// The content of the ConfigMaps.
    pub texts: Texts,
}

/// The content of the ConfigMaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// Injector config.
    pub config: String,
    /// Values.
    pub values: String,
    /// Mesh config.
    pub mesh: String,
}

/// `failurePolicy`: pods are rejected, or come up outside of the mesh, silently.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they would be repeated in the help of the flag, which says it")]
pub enum FailurePolicy {
    #[default]
    Fail,
    Ignore,
}

impl FailurePolicy {
    /// As Kubernetes writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// Where the certificate and the caBundle come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificates {
    /// The injector itself.
    #[default]
    SelfSigned,
    /// cert-manager and its CA injector.
    CertManager,
}

/// The platform; with OpenShift, users come from the namespace's range.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they would be repeated in the help of the flag, which says it")]
pub enum Platform {
    #[default]
    Kubernetes,
    Openshift,
}

/// The number of replicas.
pub type Replicas = NonZeroU16;
