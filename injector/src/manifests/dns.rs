//! Names in the syntax of Kubernetes: DNS labels and subdomains. Every value is valid.

use std::str::FromStr;

/// The longest label.
const LABEL: usize = 63;
/// The longest name of an object.
const SUBDOMAIN: usize = 253;
/// Names of Services and labels have at most 63 characters, and ours stand in front of a revision.
const INSTALLED: usize = LABEL - "istio-sidecar-injector-".len();

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident $parse:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                $parse(text).map(Self)
            }
        }
    )*};
}

names! {
    /// A namespace's name.
    Namespace label;
    /// A Service's name.
    ServiceName label;
    /// The name of any other object.
    Subdomain subdomain;
}

/// A revision; empty is the default one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision<const LONGEST: usize = LABEL>(String);

/// A revision whose name is a part of other names.
pub type InstalledRevision = Revision<INSTALLED>;

impl<const LONGEST: usize> Revision<LONGEST> {
    /// The name of the revision, empty for the default one.
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

impl<const LONGEST: usize> FromStr for Revision<LONGEST> {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text {
            "" | "default" => Ok(Self::default()),
            name => label_of(name, LONGEST).map(Self),
        }
    }
}

/// An invalid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not accepted, expected at most {longest} of {}, beginning and ending with a letter or digit{}",
    if *.dots { "a-z, 0-9, - and ." } else { "a-z, 0-9 and -" },
    if *.dots { " around every dot" } else { "" }
)]
pub struct NameError {
    given: String,
    longest: usize,
    dots: bool,
}

fn label(text: &str) -> Result<String, NameError> {
    label_of(text, LABEL)
}

fn subdomain(text: &str) -> Result<String, NameError> {
    if text.len() <= SUBDOMAIN && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(NameError { given: text.to_owned(), longest: SUBDOMAIN, dots: true })
    }
}

fn label_of(text: &str, longest: usize) -> Result<String, NameError> {
    if is_label(text) && text.len() <= longest {
        Ok(text.to_owned())
    } else {
        Err(NameError { given: text.to_owned(), longest, dots: false })
    }
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.into_iter().all(|end| end.is_some_and(|end| inner(*end)))
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        let longest = "a".repeat(63);
        for good in ["a", "istio-system", "1-20", "canary", &longest] {
            assert_eq!(good.parse::<Namespace>().map(|name| name.as_str().to_owned()), Ok(good.to_owned()));
            assert!(good.parse::<ServiceName>().is_ok() && good.parse::<Subdomain>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a b", "a/b", "a\nb", "a_b", "\u{e4}", &"a".repeat(300)] {
            let error = bad.parse::<Namespace>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("at most 63 of a-z"), "{error}");
            assert!(bad.parse::<ServiceName>().is_err() && bad.parse::<Subdomain>().is_err(), "{bad}");
        }
        assert!("a.b".parse::<Namespace>().is_err());
        assert_eq!("a.b-c.d".parse::<Subdomain>().unwrap().as_str(), "a.b-c.d");
        for bad in [".", "a.", ".a", "a..b", "a.-b"] {
            let error = bad.parse::<Subdomain>().unwrap_err().to_string();
            assert!(error.contains("a-z, 0-9, - and ., beginning"), "{error}");
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
        let names = |length: usize| {
            let name = "a".repeat(length);
            (name.parse::<Revision>(), name.parse::<InstalledRevision>())
        };
        assert!(matches!(names(40), (Ok(_), Ok(_))) && names(63).0.is_ok());
        let (long, installed) = (names(64).0.unwrap_err().to_string(), names(41).1.unwrap_err().to_string());
        assert!(long.contains("at most 63") && installed.contains("at most 40"), "{long}, {installed}");
    }
}
