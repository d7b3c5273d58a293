//! Istio's annotations and labels of a pod that mean nothing: unknown keys, often known ones, misspelt, and
//! keys in the wrong place.

use serde_json::Value;

use crate::annotations::{KeyKind, Row, TABLE, is_instead_of_inject, keys, row};
use crate::pod::list;

/// Prefixes under which every key should be known.
const PREFIXES: [&str; 8] = [
    "inject.istio.io/",
    "prometheus.istio.io/",
    "proxy.istio.io/",
    "readiness.status.sidecar.istio.io/",
    "sidecar.istio.io/",
    "status.sidecar.istio.io/",
    "traffic.sidecar.istio.io/",
    "injector.istio.io/",
];

/// The most letters that a misspelt key differs in.
const MAX_DISTANCE: usize = 4;
/// Maximum number of reported unknown keys: more are not misspellings.
pub(super) const MAX_UNKNOWN: usize = 20;
/// A name behind the slash that is as long as this belongs to one key, whatever the prefix.
const DISTINCT: usize = 8;

/// The annotations and labels of Istio that mean nothing, each in a sentence.
pub(crate) fn unknown_keys(pod: &Value) -> Vec<String> {
    let of_map = |(what, map)| {
        let keys = list::metadata(pod, map).into_iter().flat_map(|map| map.keys());
        keys.filter_map(move |key| without_effect(what, key))
    };
    [("annotation", "annotations"), ("label", "labels")]
        .into_iter()
        .flat_map(of_map)
        .take(MAX_UNKNOWN)
        .collect()
}

/// Why a key has no effect here.
fn without_effect(what: &str, key: &str) -> Option<String> {
    if is_instead_of_inject(what, key) {
        return None;
    }
    let Some(row) = row(key) else { return unknown(what, key) };
    let expected = match (what, row.place) {
        ("label", KeyKind::Annotation) => "it is an annotation".to_owned(),
        ("label", KeyKind::NamespaceLabel) => {
            format!("it is a label of the namespace, {} is that of a pod", keys::INJECT)
        }
        _ => return None,
    };
    Some(format!("{what} {key} has no effect: {expected}"))
}

fn unknown(what: &str, key: &str) -> Option<String> {
    let near = near(key);
    let is_of_istio = PREFIXES.iter().any(|prefix| key.starts_with(prefix));
    let hint = match near {
        Some(row) => format!("; did you mean {}?", row.key),
        None if is_of_istio => String::new(),
        None => return None,
    };
    Some(format!("{what} {key} is not known and has no effect{hint}"))
}

/// The row that was probably meant by an unknown key of Istio.
fn near(key: &str) -> Option<&'static Row> {
    let lower = key.to_lowercase();
    if !lower.contains("istio") {
        return None;
    }
    let name = |key: &str| key.rsplit('/').next().unwrap_or_default().to_lowercase();
    let own = name(key);
    // Words that differ more in length differ in more letters than a slip does; comparing them all costs
    // seconds.
    let alike = TABLE.iter().filter(|row| row.key.len().abs_diff(key.len()) <= MAX_DISTANCE);
    let distance = |row: &&'static Row| (strsim::levenshtein(&row.key.to_lowercase(), &lower), *row);
    // Of a short name, four letters are all of it.
    let is_slip = |(steps, row): &(usize, &Row)| *steps <= MAX_DISTANCE.min(name(row.key).len() / 2);
    let slip = alike.map(|row| distance(&row)).filter(is_slip).min_by_key(|(steps, row)| (*steps, row.key));
    let whole = |row: &&Row| {
        let known = name(row.key);
        known == own && own.len() >= DISTINCT || lower == format!("{}ision", row.key)
    };
    slip.map(|(_, row)| row).or_else(|| TABLE.iter().find(whole))
}
