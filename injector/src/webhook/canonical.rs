//! A pod as it comes, without what differs between the pods of one template and does not matter to an injection.
//!
//! Two things differ: `metadata.managedFields`, which carries a time and which neither templates nor the patch ever see (as
//! in Istio), and the name of the volume with the service account's token, to which the API server gives a random end.
//! All pods are injected with one and the same end instead, and the real one takes its place again in whatever is said
//! about the pod. So the answer for a pod does not depend on whether another one was answered before. (A config that spells
//! out the stand-in would name the pod's own volume with it.)

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

const PREFIX: &str = "\"kube-api-access-";
const STAND_IN: &str = "kube-api-access-z2z2z";
/// What the API server makes random names of.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A pod in this form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical<'a> {
    /// As JSON; `metadata.managedFields` is an empty list where there was one.
    pub text: Cow<'a, str>,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    renamed: Option<&'a str>,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    managed_fields: Option<&'a RawValue>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
}

impl<'a> Canonical<'a> {
    /// Takes what does not matter out of a pod. `others` are the other texts that an answer may show: the stand-in for
    /// the random name must not be in them.
    #[must_use]
    pub fn of<'o>(object: &'a str, others: impl IntoIterator<Item = &'o str>) -> Self {
        let metadata = metadata(object);
        let unmanaged = metadata.as_ref().and_then(|metadata| {
            let fields = metadata.managed_fields?.get();
            // The fields are a slice of the object.
            let start = (fields.as_ptr() as usize).checked_sub(object.as_ptr() as usize)?;
            let (before, after) = (object.get(..start)?, object.get(start + fields.len()..)?);
            Some(Cow::Owned([before, "[]", after].concat()))
        });
        let text = unmanaged.unwrap_or(Cow::Borrowed(object));
        let renamed = random_name(object).filter(|_| {
            !text.contains(STAND_IN) && !others.into_iter().any(|other| other.contains(STAND_IN))
        });
        let text = match renamed {
            Some(name) => Cow::Owned(text.replace(name, STAND_IN)),
            None => text,
        };
        let namespace = metadata.and_then(|metadata| metadata.namespace).map(Cow::into_owned);
        Self { text, namespace, renamed }
    }

    /// Puts the real name in place again.
    #[must_use]
    pub fn restore<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.renamed {
            Some(name) if text.contains(STAND_IN) => Cow::Owned(text.replace(STAND_IN, name)),
            _ => Cow::Borrowed(text),
        }
    }
}

/// Objects only: the reader would take lists too.
fn metadata(object: &str) -> Option<Metadata<'_>> {
    let is_map = |text: &str| text.trim_start().starts_with('{');
    let head: Head<'_> = serde_json::from_str(object).ok().filter(|_| is_map(object))?;
    let text = head.metadata?.get();
    serde_json::from_str(text).ok().filter(|_| is_map(text))
}

/// The first string that is a generated name.
fn random_name(object: &str) -> Option<&str> {
    let is_random = |name: &&str| name.bytes().all(|byte| ALPHABET.contains(&byte));
    object.match_indices(PREFIX).find_map(|(at, prefix)| {
        let start = at + prefix.len();
        let end = start + 5;
        object.get(start..end).filter(is_random)?;
        let ends = object.get(end..)?.starts_with('"');
        object.get(at + 1..end).filter(|_| ends)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"metadata":{"namespace":"shop","managedFields":[{"time":"x"}],"name":"a"},"spec":{"volumes":[{"name":"kube-api-access-xm9zs"}],"b":"kube-api-access-xm9zs"}}"#;

    #[test]
    fn times_and_random_names_do_not_matter() {
        let one = Canonical::of(POD, []);
        let other = POD.replace("xm9zs", "bbbbb").replace("\"time\":\"x\"", "");
        let other = Canonical::of(&other, []);
        assert_eq!(one.text, other.text);
        assert_eq!(one.namespace.as_deref(), Some("shop"));
        assert!(one.text.contains(r#""managedFields":[],"name":"a"#), "{}", one.text);
        assert_eq!(one.restore("/x/kube-api-access-z2z2z/y"), "/x/kube-api-access-xm9zs/y");
        assert_eq!(other.restore("kube-api-access-z2z2z"), "kube-api-access-bbbbb");
        assert_eq!(one.restore(&one.text), POD.replace(r#"{"time":"x"}"#, ""));
    }

    #[test]
    fn what_could_be_mistaken_stays() {
        for (text, others) in [
            (POD.replace("\"a\"", "\"kube-api-access-z2z2z\""), vec![]),
            (POD.to_owned(), vec!["kube-api-access-z2z2z"]),
            (r#"{"spec":"kube-api-access-xm9z"}"#.to_owned(), vec![]),
            (r#"{"spec":"kube-api-access-xm9zss"}"#.to_owned(), vec![]),
            (r#"{"spec":"kube-api-access-xm9za"}"#.to_owned(), vec![]),
        ] {
            let canonical = Canonical::of(&text, others);
            assert_eq!(canonical.renamed, None, "{text}");
            assert_eq!(canonical.restore("kube-api-access-z2z2z"), "kube-api-access-z2z2z");
        }
    }

    #[test]
    fn other_shapes_stay_as_they_are() {
        for text in [
            "7",
            "[]",
            "{",
            r#"[{"managedFields":[1]}]"#,
            r#"{"metadata":[[1]]}"#,
            r#"{"metadata":"x"}"#,
            r#"{"metadata":null}"#,
            r#"{"metadata":{},"metadata":{"managedFields":[1]}}"#,
        ] {
            assert_eq!(Canonical::of(text, []).text, text);
        }
    }
}
