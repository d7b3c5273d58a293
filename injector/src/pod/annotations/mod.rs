//! Validation of a pod's annotations: values that are not accepted, unknown keys, annotations without effect.

mod capture;
mod unknown;

#[cfg(test)]
mod tests;

use istio_iptables::cli::Key;
use istio_iptables::config::{decimal, parse_bool};
use serde_json::Value;

use crate::annotations::{Row, Syntax, TABLE, keys, row, shown};
use crate::path::FieldError;
use crate::pod::list::{self, annotation};
use crate::quantity;
use crate::schema::check::Malformed;
use crate::yaml::YamlError;

use capture::Capture;

pub(crate) use unknown::unknown_keys;

/// An annotation whose value cannot be followed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AnnotationError {
    /// A field of its value is not accepted.
    #[error("annotation {key}: {error}")]
    Field { key: &'static str, error: FieldError },
    /// The annotation holds objects of the wrong shape.
    #[error("annotation {key}: {error}")]
    Malformed { key: &'static str, error: Malformed },
    /// The value of the annotation is not accepted; what is accepted, or what is wrong.
    #[error("annotation {key}: {} is not accepted, expected {expected}", shown(given))]
    NotAccepted { key: String, given: String, expected: String },
    /// The annotation lists too many names.
    #[error("annotation {key}: {} has {names} names, expected at most {most}", shown(given))]
    TooMany { key: &'static str, given: String, names: usize, most: usize },
    /// The annotation is not YAML.
    #[error("annotation {key}: {error}")]
    Yaml { key: &'static str, error: YamlError },
}

/// The result of validating the annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Checked {
    /// What cannot be followed, sorted by key.
    pub errors: Vec<AnnotationError>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// Looks at every annotation of a pod. The syntax of `proxy.istio.io/config` and the names of templates are
/// looked at where they are used.
pub(crate) fn check(pod: &Value) -> Checked {
    let mut checked = Checked::default();
    for (key, value) in list::metadata(pod, "annotations").into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        let Some(row) = row(key) else { continue };
        if let Some(expected) = wrong(row.syntax, text) {
            let (key, given) = (key.clone(), text.to_owned());
            checked.errors.push(AnnotationError::NotAccepted { key, given, expected });
        }
        checked.warnings.extend(fails_envoy(row, text));
        if let Syntax::WordOrIgnored(words) = row.syntax
            && !words.contains(&text)
            && key != keys::INJECT
        {
            let words = words.join(" or ");
            checked.warnings.push(format!("annotation {key}: {} is ignored, expected {words}", shown(text)));
        }
    }
    checked.warnings.extend(unknown_keys(pod));
    let capture = Capture::of(pod);
    checked.errors.extend(capture.errors);
    checked.warnings.extend(capture.warnings);
    checked.warnings.extend(inert(pod));
    checked.errors.sort_by_cached_key(ToString::to_string);
    checked
}

/// What would have been accepted, if the text is not.
fn wrong(syntax: Syntax, text: &str) -> Option<String> {
    match syntax {
        Syntax::Boolean => parse_bool(text).is_none().then(|| "true or false".to_owned()),
        Syntax::JsonObject => match serde_json::from_str(text) {
            Ok(Value::Object(_)) => None,
            _ => Some("a JSON object".to_owned()),
        },
        Syntax::JsonNamed(required) => {
            let has = |item: &Value, key| {
                item.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
            };
            let complete = |item: &Value| required.is_none_or(|key| has(item, key));
            let usable = match serde_json::from_str(text) {
                Ok(Value::Object(by_name)) => {
                    by_name.iter().all(|(name, item)| !name.is_empty() && item.is_object() && complete(item))
                }
                Ok(Value::Array(items)) => items.iter().all(|item| has(item, "name") && complete(item)),
                _ => false,
            };
            (!usable).then(|| {
                let each = required.map(|key| format!(", each with {key}")).unwrap_or_default();
                format!("a JSON object of objects by name, or a JSON array of objects with a name{each}")
            })
        }
        Syntax::Number => (decimal(text).is_none_or(|number| number > i32::MAX.unsigned_abs().into()))
            .then(|| "a plain number from 0 on".to_owned()),
        Syntax::PortOrZero => decimal(text)
            .is_none_or(|port| port > 65535)
            .then(|| "a plain port number from 0 to 65535; 0 means none".to_owned()),
        Syntax::Quantity => {
            let usable = quantity::canonical(text).is_ok_and(|quantity| !quantity.starts_with('-'));
            (!usable).then(|| "a quantity from 0 on, such as 100m, 0.5 or 128Mi".to_owned())
        }
        Syntax::ScrapeTargets => targets(text),
        Syntax::Word(words) => (!words.contains(&text)).then(|| words.join(", ")),
        Syntax::Capture(_)
        | Syntax::EnvoyLevel
        | Syntax::EnvoyLevels
        | Syntax::ProxyConfig
        | Syntax::Text
        | Syntax::WordOrIgnored(_)
        | Syntax::SetByInjection => None,
    }
}

/// Ports on which the proxy and its agent listen.
pub(super) const RESERVED: [u64; 9] = [15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090];

fn targets(text: &str) -> Option<String> {
    let wrong = text.split(',').map(str::trim).filter(|item| !item.is_empty()).find(|item| {
        let (port, path) = item.split_once(':').unwrap_or((item, "/"));
        let port = decimal(port.trim()).filter(|port| (1..=65535).contains(port) && !RESERVED.contains(port));
        port.is_none() || !path.trim().is_empty() && !path.trim().starts_with('/')
    });
    let reserved: Vec<String> = RESERVED.iter().map(ToString::to_string).collect();
    wrong.map(|item| {
        format!("{item:?} to be PORT:/PATH with none of the proxy's own ports ({})", reserved.join(", "))
    })
}

/// Log levels of Envoy. It is another program, of which an image may hold another version: a warning is
/// enough.
const ENVOY_LEVELS: [&str; 8] = ["trace", "debug", "info", "warning", "warn", "error", "critical", "off"];

fn fails_envoy(row: &Row, text: &str) -> Option<String> {
    let is_level = |word: &str| ENVOY_LEVELS.contains(&word);
    let (starts, form) = if row.syntax == Syntax::EnvoyLevel {
        (is_level(text), "LEVEL")
    } else if row.syntax == Syntax::EnvoyLevels {
        let mut pairs = text.split(',').map(|pair| pair.split_once(':'));
        (pairs.all(|pair| pair.is_some_and(|(_, level)| is_level(level))), "COMPONENT:LEVEL,...")
    } else {
        return None;
    };
    (!text.is_empty() && !starts).then(|| {
        format!(
            "annotation {}: Envoy does not start with {}, expected {form} with the levels {}",
            row.key,
            shown(text),
            ENVOY_LEVELS.join(", ")
        )
    })
}

/// Annotations for templates that none of the applied ones names. The last part of the key is enough, since a
/// template may put the key together.
pub(crate) fn unread(pod: &Value, templates: &[&str]) -> Vec<String> {
    let read = |key: &str| {
        let last = key.rsplit('/').next().unwrap_or(key);
        templates.iter().any(|text| text.contains(last))
    };
    let rows = TABLE.iter().filter(|row| row.for_templates && annotation(pod, row.key).is_some());
    let unread = rows.filter(|row| !read(row.key));
    unread
        .map(|row| format!("annotation {} has no effect: none of the applied templates reads it", row.key))
        .collect()
}

/// Annotations that have no effect together with the others.
fn inert(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut inert = |key: &str, why: &str| {
        if annotation(pod, key).is_some() {
            warnings.push(format!("annotation {key} has no effect: {why}"));
        }
    };
    if list::label(pod, keys::INJECT).is_some_and(|value| !value.is_empty()) {
        inert(keys::INJECT, "the label of this name wins");
    }
    if annotation(pod, keys::STATUS_PORT) == Some("0") {
        for row in TABLE.iter().filter(|row| row.key.starts_with("readiness.status.")) {
            inert(row.key, "with status.sidecar.istio.io/port 0 the proxy has no probes");
        }
        let why = "with status.sidecar.istio.io/port 0 the agent has no port for the app's probes";
        inert(keys::REWRITE_APP_HTTP_PROBERS, why);
    }
    if annotation(pod, keys::INTERCEPTION_MODE) == Some("NONE") {
        // The agent reads the log level too.
        let captures = |row: &&Row| matches!(row.syntax, Syntax::Capture(key) if key != Key::LogOutputLevel);
        for row in TABLE.iter().filter(captures) {
            inert(row.key, "nothing is captured with sidecar.istio.io/interceptionMode NONE");
        }
    }
    if annotation(pod, keys::REROUTE_VIRTUAL_INTERFACES).is_some() {
        inert(keys::KUBEVIRT_INTERFACES, "istio.io/reroute-virtual-interfaces wins");
    }
    match annotation(pod, keys::PROXY_IMAGE) {
        Some(image) if image.contains('/') => {
            inert(keys::PROXY_IMAGE_TYPE, "sidecar.istio.io/proxyImage names the whole image");
        }
        _ => inert(keys::PROXY_IMAGE, "only a whole image name, with a slash, is used"),
    }
    warnings
}
