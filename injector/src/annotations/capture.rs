//! Capture annotations, read by the init binary's own parser: what is accepted here never fails in the pod.

use std::ffi::OsString;

use istio_iptables::cli::{self, Key, Origin, Outcome};
use istio_iptables::config::{self, ConfigError, Resolved, Warning};
use istio_iptables::facts::Files;
use serde_json::Value;

use super::BadAnnotation;
use super::table::{Syntax, TABLE};
use crate::pod::list::annotation;

/// How many items of one annotation are told.
const TOLD: usize = 10;

/// What the init binary says about a pod's annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// What it refuses.
    pub errors: Vec<BadAnnotation>,
    /// What it finds odd.
    pub warnings: Vec<String>,
}

impl Capture {
    /// Has the annotations of a pod read as the options they become.
    #[must_use]
    pub fn of(pod: &Value) -> Self {
        let given: Vec<(Key, &'static str, &str)> = TABLE
            .iter()
            .filter_map(|row| match row.syntax {
                Syntax::Capture(key) => Some((key, row.key, annotation(pod, row.key)?)),
                Syntax::Boolean
                | Syntax::JsonObject
                | Syntax::Number
                | Syntax::PortOrZero
                | Syntax::ProxyConfig
                | Syntax::Quantity
                | Syntax::ScrapeTargets
                | Syntax::Text
                | Syntax::Word(_)
                | Syntax::WordOrIgnored(_)
                | Syntax::Written => None,
            })
            .collect();
        let mut capture = Self::default();
        // Each by itself, since two annotations may stand for one option.
        for (key, name, text) in &given {
            let arguments = with_defaults(&[(*key, text)]);
            if let Err(problems) = resolve(&arguments) {
                let mut told: Vec<String> =
                    problems.iter().filter_map(|problem| expected(problem, *key, text)).collect();
                let more = told.len().saturating_sub(TOLD);
                told.truncate(TOLD);
                if let Some(last) = told.last_mut().filter(|_| more > 0) {
                    *last = format!("{last}; {more} more items are not accepted either");
                }
                let bad =
                    |expected| BadAnnotation { key: (*name).to_owned(), given: (*text).to_owned(), expected };
                capture.errors.extend(told.into_iter().map(bad));
            }
        }
        if capture.errors.is_empty() && !given.is_empty() {
            let options: Vec<(Key, &str)> = given.iter().map(|(key, _, text)| (*key, *text)).collect();
            let resolved = resolve(&with_defaults(&options));
            capture.warnings = resolved.map(|resolved| warnings(&resolved, &given)).unwrap_or_default();
        }
        capture
    }
}

/// Has a container's arguments read by the init binary's parser.
///
/// # Errors
///
/// Everything it refuses, one sentence each.
pub fn explain_arguments(arguments: &[String]) -> Result<Resolved, Vec<String>> {
    parse(arguments).and_then(|raw| {
        config::resolve(&raw, &files()).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    })
}

/// The templates' defaults for what is not given: they decide what has an effect.
fn with_defaults(options: &[(Key, &str)]) -> Vec<String> {
    let mut arguments = vec![flag(Key::ServiceCidr, "*"), flag(Key::InboundPorts, "*")];
    arguments.extend(options.iter().map(|(key, text)| flag(*key, text)));
    arguments
}

fn flag(key: Key, text: &str) -> String {
    format!("--{}={text}", key.spec().name)
}

fn files() -> Files {
    Files { passwd: String::new(), group: String::new(), resolv_conf: Ok(String::new()) }
}

fn parse(arguments: &[String]) -> Result<cli::RawOptions, Vec<String>> {
    let all =
        std::iter::once("istio-iptables").chain(arguments.iter().map(String::as_str)).map(OsString::from);
    let parsed = cli::parse(all, [], &mut std::io::empty(), &|_| Err(std::io::ErrorKind::Unsupported.into()));
    match parsed {
        Ok(Outcome::Run(raw)) => Ok(raw),
        Ok(Outcome::Print(_)) => Err(vec!["the arguments only ask for help".to_owned()]),
        Err(failure) => Err(failure.errors.iter().map(ToString::to_string).collect()),
    }
}

fn resolve(arguments: &[String]) -> Result<Resolved, Vec<ConfigError>> {
    match parse(arguments) {
        Ok(raw) => config::resolve(&raw, &files()),
        // `--flag=value` with a flag from the table is always read.
        Err(_) => Err(Vec::new()),
    }
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
        given.iter().find(|(key, ..)| *origin == Origin::Flag(*key)).map(|(_, name, _)| *name)
    };
    let lines = resolved.warnings.iter().filter_map(|warning| match warning {
        Warning::EmptyList { origin, given } => {
            Some(format!("annotation {}: {given:?} holds no item and counts as unset", name(origin)?))
        }
        Warning::HostBits { origin, given, used } => Some(format!(
            "annotation {}: {given} has bits set behind its prefix; {used} counts",
            name(origin)?
        )),
        Warning::NoEffect { origin, reason } => {
            Some(format!("annotation {} has no effect: {reason}", name(origin)?))
        }
    });
    lines.collect()
}
