//! The annotation that carries a pod's capture options from the injector to the CNI plugin: `docs/cni.md` has
//! its schema.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use crate::cli::{Heading, Key, OptionValue, Origin};
use crate::ordered::Ordered as _;

/// The annotation's key.
pub const CAPTURE_ANNOTATION: &str = "istio-iptables/capture-options";

/// The version of the schema that is written and read.
pub const CAPTURE_ANNOTATION_VERSION: u64 = 1;

/// Why the annotation cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureAnnotationError {
    /// The annotation is not the JSON object that it has to be.
    Malformed(String),
    /// Another version of the schema.
    Version(String),
    /// An option that it may not have: none of this version, or not about which traffic is captured.
    Option(String),
}

impl fmt::Display for CaptureAnnotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(problem) => {
                write!(f, "{problem}; expected {{\"version\": 1, \"options\": {{NAME: TEXT}}}}")
            }
            Self::Version(given) => write!(f, "version {given} is not accepted, expected 1"),
            Self::Option(name) => {
                write!(f, "option {name:?} is not accepted, expected an option about traffic")
            }
        }
    }
}

impl std::error::Error for CaptureAnnotationError {}

/// Whether an option may be in the annotation. The pod's owner writes annotations: they decide which traffic
/// of this pod is captured, and nothing else; they name no file of the node.
#[must_use]
pub fn is_about_traffic(key: Key) -> bool {
    match key.spec().heading {
        Heading::Proxy => key != Key::EnvoyUser, // a name, to be looked up in the node's /etc/passwd
        Heading::Inbound | Heading::Outbound | Heading::Dns | Heading::Interfaces | Heading::Families => true,
        Heading::Backend | Heading::Run | Heading::Validation | Heading::Logging => false,
    }
}

/// Writes the annotation. Options that are not about traffic are left out.
#[must_use]
pub fn write_capture_annotation<'a>(options: impl IntoIterator<Item = (Key, &'a str)>) -> String {
    let sorted: BTreeMap<Key, &str> =
        options.into_iter().filter(|(key, _)| is_about_traffic(*key)).into_map();
    // Piece by piece: the order of keys in a `Value` is a feature of the crate, which another program of the
    // workspace may switch on.
    let options = sorted.into_iter().map(|(key, text)| format!("{}:{}", json!(key.spec().name), json!(text)));
    let options = options.collect::<Vec<_>>().join(",");
    format!("{{\"version\":{CAPTURE_ANNOTATION_VERSION},\"options\":{{{options}}}}}")
}

/// Reads the annotation. The values themselves are parsed with all other options.
///
/// # Errors
/// It has another version or form, or options that it may not have.
pub fn read_capture_annotation(text: &str) -> Result<Vec<(Key, OptionValue)>, CaptureAnnotationError> {
    let malformed = |problem: &str| CaptureAnnotationError::Malformed(problem.to_owned());
    let value: Value =
        serde_json::from_str(text).map_err(|error| CaptureAnnotationError::Malformed(error.to_string()))?;
    let Value::Object(mut object) = value else { return Err(malformed("not a JSON object")) };
    // The version first: another one may have other keys.
    match object.remove("version") {
        Some(version) if version == CAPTURE_ANNOTATION_VERSION => {}
        Some(version) => return Err(CaptureAnnotationError::Version(version.to_string())),
        None => return Err(malformed("no version")),
    }
    let Some(Value::Object(options)) = object.remove("options") else {
        return Err(malformed("no options"));
    };
    if let Some(unknown) = object.keys().next() {
        return Err(CaptureAnnotationError::Malformed(format!("unknown key {unknown:?}")));
    }
    options.into_iter().map(option).collect()
}

fn option((name, value): (String, Value)) -> Result<(Key, OptionValue), CaptureAnnotationError> {
    let key = Key::by_name(&name).filter(|key| is_about_traffic(*key));
    let Some(key) = key else { return Err(CaptureAnnotationError::Option(name)) };
    let Value::String(text) = value else {
        return Err(CaptureAnnotationError::Malformed(format!("the value of {name:?} is not a string")));
    };
    Ok((key, OptionValue { text, origin: Origin::Document(key) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_options_are_read() {
        let options = [
            (Key::InboundPorts, "*"),
            (Key::ProxyUid, "1337"),
            (Key::RedirectDns, "true"),
            (Key::OutboundOwnerGroups, "202"),
            (Key::RunValidation, "true"),
            (Key::NetworkNamespace, "/proc/1/ns/net"),
        ];
        let text = write_capture_annotation(options);
        assert_eq!(
            text,
            r#"{"version":1,"options":{"proxy-uid":"1337","istio-inbound-ports":"*","ISTIO_OUTBOUND_OWNER_GROUPS":"202","redirect-dns":"true"}}"#
        );
        let mut read: Vec<(Key, String)> = read_capture_annotation(&text)
            .unwrap()
            .into_iter()
            .map(|(key, given)| (key, given.text))
            .collect();
        read.sort();
        let mut wanted: Vec<(Key, String)> =
            options.iter().take(4).map(|(key, text)| (*key, (*text).to_owned())).collect();
        wanted.sort();
        assert_eq!(read, wanted);
    }

    #[test]
    fn what_is_not_about_traffic_is_refused() {
        for key in Key::ALL {
            let name = key.spec().name;
            let read = read_capture_annotation(&json!({"version": 1, "options": {name: "1"}}).to_string());
            assert_eq!(read.is_ok(), is_about_traffic(*key), "{name}");
        }
        for name in
            ["config", "network-namespace", "rules-file", "DRY_RUN_FILE_PATH", "dry-run", "cleanup-only"]
        {
            let text = json!({"version": 1, "options": {name: "1"}}).to_string();
            assert_eq!(read_capture_annotation(&text), Err(CaptureAnnotationError::Option(name.to_owned())));
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for (text, part) in [
            ("", "EOF"),
            ("[]", "not a JSON object"),
            ("{}", "no version"),
            (r#"{"version": 2, "anything": 1}"#, "version 2 is not accepted, expected 1"),
            (r#"{"version": "1", "options": {}}"#, "version \"1\""),
            (r#"{"version": 1}"#, "no options"),
            (r#"{"version": 1, "options": []}"#, "no options"),
            (r#"{"version": 1, "options": {}, "more": 1}"#, "unknown key \"more\""),
            (r#"{"version": 1, "options": {"proxy-uid": 1337}}"#, "\"proxy-uid\" is not a string"),
        ] {
            let error = read_capture_annotation(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
