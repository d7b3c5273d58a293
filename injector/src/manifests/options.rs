//! What an installation can be told. A value that exists is valid.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// Everything that the objects depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the injector runs.
    pub namespace: Namespace,
    /// Which revision it serves.
    pub revision: Revision,
    /// The injector's image.
    pub image: String,
    /// How many run, at least.
    pub replicas: Replicas,
    /// What happens to pods while none of them answers.
    pub failure_policy: FailurePolicy,
    /// Whether namespaces and pods without any label are injected.
    pub by_default: bool,
    /// Who makes the certificate.
    pub certificates: Certificates,
    /// What sort of cluster it is.
    pub flavour: Flavour,
    /// Whether pods with a left-over `image: auto` are refused.
    pub validating_policy: bool,
    /// What the ConfigMaps hold.
    pub texts: Texts,
}

/// What the ConfigMaps hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// Injector config.
    pub config: String,
    /// Values.
    pub values: String,
    /// Mesh config.
    pub mesh: String,
}

/// `failurePolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Pods are refused.
    #[default]
    Fail,
    /// Pods come up outside of the mesh, silently.
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

/// Who makes the certificate, and tells the API server whom to trust.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificates {
    /// The injector itself.
    #[default]
    SelfSigned,
    /// cert-manager and its CA injector.
    CertManager,
}

/// What sort of cluster it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Any.
    #[default]
    Kubernetes,
    /// Users come from the namespace's range.
    Openshift,
}

/// How many replicas.
pub type Replicas = NonZeroU16;

/// A namespace's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace(String);

impl Namespace {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Namespace {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        label(text).map(Self)
    }
}

/// A revision; empty is the default one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision(String);

impl Revision {
    /// Its name, empty for the default one.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As the label `istio.io/rev` has it.
    #[must_use]
    pub fn label(&self) -> &str {
        if self.0.is_empty() { "default" } else { &self.0 }
    }
}

impl FromStr for Revision {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text {
            "" | "default" => Ok(Self::default()),
            name => label(name).map(Self),
        }
    }
}

/// A text that cannot be part of an object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    given: String,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not accepted, expected at most {LONGEST} of a-z, 0-9 and -, beginning and ending with a letter or digit",
            self.given
        )
    }
}

impl std::error::Error for NameError {}

/// Names of Services and labels have at most 63 characters, and ours stand in front of a revision.
const LONGEST: usize = 63 - "istio-sidecar-injector-".len();

fn label(text: &str) -> Result<String, NameError> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends =
        bytes.first().is_some_and(|first| inner(*first)) && bytes.last().is_some_and(|last| inner(*last));
    if ends && bytes.len() <= LONGEST && bytes.iter().all(|byte| inner(*byte) || *byte == b'-') {
        Ok(text.to_owned())
    } else {
        Err(NameError { given: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        for good in ["a", "istio-system", "1-20", "canary"] {
            assert_eq!(good.parse::<Namespace>().map(|name| name.as_str().to_owned()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"a".repeat(LONGEST + 1)] {
            let error = bad.parse::<Namespace>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("a-z"), "{error}");
        }
    }

    #[test]
    fn the_default_revision_has_two_names() {
        for text in ["", "default"] {
            let revision: Revision = text.parse().unwrap();
            assert_eq!((revision.as_str(), revision.label()), ("", "default"));
        }
        let revision: Revision = "canary".parse().unwrap();
        assert_eq!((revision.as_str(), revision.label()), ("canary", "canary"));
    }
}
