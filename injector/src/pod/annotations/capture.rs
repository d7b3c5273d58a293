//! Capture annotations, read by the init binary's own parser: what is accepted here never fails in the pod.

use istio_iptables::cli::{Key, Origin};
use istio_iptables::config::{ConfigError, Resolved};
use serde_json::Value;

use super::AnnotationError;
use crate::annotations::{Syntax, TABLE};
use crate::pod::init_options::InitOptions;
use crate::pod::list::annotation;

/// Maximum number of reported items of an annotation.
const MAX_REPORTED: usize = 10;

/// What the init binary says about a pod's annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Capture {
    /// The errors of the init binary.
    pub(super) errors: Vec<AnnotationError>,
    /// The warnings of the init binary.
    pub(super) warnings: Vec<String>,
}

impl Capture {
    /// Has the annotations of a pod read as the options they become.
    pub(super) fn of(pod: &Value) -> Self {
        let given: Vec<(Key, &'static str, &str)> = TABLE
            .iter()
            .filter_map(|row| match row.syntax {
                Syntax::Capture(key) => Some((key, row.key, annotation(pod, row.key)?)),
                Syntax::Boolean
                | Syntax::EnvoyLevel
                | Syntax::EnvoyLevels
                | Syntax::JsonObject
                | Syntax::JsonNamed(_)
                | Syntax::Number
                | Syntax::PortOrZero
                | Syntax::ProxyConfig
                | Syntax::Quantity
                | Syntax::ScrapeTargets
                | Syntax::Text
                | Syntax::Word(_)
                | Syntax::WordOrIgnored(_)
                | Syntax::SetByInjection => None,
            })
            .collect();
        let mut capture = Self::default();
        // Each by itself, since two annotations may set one option.
        for (key, name, text) in &given {
            let problems = read(&[(*key, text)]).refused;
            let mut reported: Vec<String> =
                problems.iter().filter_map(|problem| expected(problem, *key, text)).collect();
            let more = reported.len().saturating_sub(MAX_REPORTED);
            reported.truncate(MAX_REPORTED);
            if let Some(last) = reported.last_mut().filter(|_| more > 0) {
                *last = format!("{last}; {more} more items are not accepted either");
            }
            let bad = |expected| AnnotationError::NotAccepted {
                key: (*name).to_owned(),
                given: (*text).to_owned(),
                expected,
            };
            capture.errors.extend(reported.into_iter().map(bad));
        }
        if capture.errors.is_empty() && !given.is_empty() {
            let options: Vec<(Key, &str)> = given.iter().map(|(key, _, text)| (*key, *text)).collect();
            let resolved = read(&options).resolved;
            capture.warnings = resolved.map(|resolved| warnings(&resolved, &given)).unwrap_or_default();
        }
        capture
    }
}

/// Reads options beside the templates' defaults for what is not given: they decide what has an effect.
fn read(options: &[(Key, &str)]) -> InitOptions {
    let flag = |key: Key, text: &str| format!("--{}={text}", key.spec().name);
    let defaults = [(Key::ServiceCidr, "*"), (Key::InboundPorts, "*")];
    let arguments: Vec<String> = defaults.iter().chain(options).map(|(key, text)| flag(*key, text)).collect();
    InitOptions::of_arguments(arguments.iter().map(String::as_str), [])
}

/// What is accepted instead, if the problem is with this option.
fn expected(problem: &ConfigError, key: Key, text: &str) -> Option<String> {
    let ours = |origin: &Origin| *origin == Origin::Flag(key);
    match problem {
        ConfigError::Value { origin, given, expected } if ours(origin) => {
            let item = if given == text { String::new() } else { format!("{given:?} to be ") };
            let hint = expected.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
            Some(format!("{item}{}{hint}", expected.what))
        }
        ConfigError::EmptyList { origin, reason, .. } if ours(origin) => {
            Some(format!("at least one item; {reason}"))
        }
        ConfigError::TooMany { origin, most, reason, .. } if ours(origin) => {
            Some(format!("at most {most} items: {reason}"))
        }
        ConfigError::Unavailable { origin, reason } if ours(origin) => {
            Some(format!("something else: {reason}"))
        }
        ConfigError::Contradiction { options, reason } if options.iter().any(ours) => {
            Some(format!("something that goes with the other options: {reason}"))
        }
        ConfigError::Contradiction { .. }
        | ConfigError::EmptyList { .. }
        | ConfigError::TooMany { .. }
        | ConfigError::Unavailable { .. }
        | ConfigError::Unreadable { .. }
        | ConfigError::Value { .. } => None,
    }
}

fn warnings(resolved: &Resolved, given: &[(Key, &'static str, &str)]) -> Vec<String> {
    let name = |origin: &Origin| {
        let (_, name, _) = given.iter().find(|(key, ..)| *origin == Origin::Flag(*key))?;
        Some(format!("annotation {name}"))
    };
    let of_annotations = resolved.warnings.iter().filter_map(|warning| {
        let name = name(warning.origin())?;
        Some(warning.calling(&|_| name.clone()))
    });
    of_annotations.collect()
}
