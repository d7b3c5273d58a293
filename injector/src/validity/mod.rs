//! Kubernetes' own rules of pods, as data: what the API server would refuse, or kubelet would not start.
//!
//! [`rules`] is the table: fields with what they accept, objects with what their fields must be together.
//! [`relations`] has the rules that one field cannot tell by itself. This module walks a pod through it, and
//! knows nothing of injection.

mod checks;
mod containers;
mod disks;
mod images;
mod metadata;
mod place;
mod projected;
mod relations;
mod resources;
mod rules;
mod scheduling;
mod text;
mod volumes;
mod windows;

#[cfg(test)]
#[allow(clippy::wildcard_enum_match_arm, reason = "tests")]
mod tests;

use std::borrow::Cow;

use gotemplate::is_same_name;
use serde_json::{Map, Value};

use crate::path::Lookup as _;

pub(crate) use place::Location;
use place::Place;
pub(crate) use relations::breaks_non_root;
pub(crate) use resources::{request, requested};
pub(crate) use text::{label_value, qualified_name};

/// A rule of Kubernetes that a pod breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The field or object.
    pub location: Location,
    /// The fields below it that are wrong together; none if the whole is.
    pub fields: Vec<String>,
    /// What is there, for a message.
    pub given: String,
    /// What Kubernetes accepts.
    pub accepted: String,
    /// What corrects it, if the rule does not say so.
    pub remedy: Remedy,
    /// Who enforces the rule; otherwise Kubernetes accepts what has another effect than it seems to have.
    pub enforced_by: Option<EnforcedBy>,
    /// What comes of it.
    pub outcome: &'static str,
}

/// How a fault is corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// By correcting the field where it is set.
    Usual,
    /// As this text says, unless a template makes a field of the pod's own wrong.
    OfSetter(&'static str),
    /// As this text says, wherever the field is set.
    Always(&'static str),
}

/// What the name of a port is.
const PORT_NAME: &str =
    "at most 15 of a-z, 0-9 and -, with a letter among them, no - at an end and no two of them together";

/// The API server does not create the pod.
const REFUSED: &str = "is not accepted";
/// A field that is not there: the API server does not create the pod.
const ABSENT: &str = "";
/// A mount of what is not there: the API server does not create the pod.
const NO_VOLUME: &str = "is no volume of the pod";
/// A claim of what is not there: the API server does not create the pod.
const NO_CLAIM: &str = "is none of spec.resourceClaims";
/// The API server's default for a volume that has no source.
pub(crate) const EMPTY_DIR: &str = "makes it an emptyDir";

/// Who enforces a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcedBy {
    /// The API server does not create the pod.
    ApiServer,
    /// The pod is created, and kubelet does not start the container.
    Kubelet,
}

impl Fault {
    /// What tells it from other faults of a pod, before injection and afterwards.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.location.in_either_list(), self.accepted)
    }
}

/// The faults of a pod, in the order of its fields.
pub(crate) fn faults(pod: &Value) -> Vec<Fault> {
    let mut checker = Checker { pod, faults: Vec::new() };
    checker.object(pod, &rules::POD, &Place::root());
    checker.faults
}

/// What the fields of an object accept, and the object as a whole.
pub(crate) struct Type {
    fields: &'static [Row],
    rules: &'static [Rule],
}

/// One field.
pub(crate) struct Row {
    key: &'static str,
    checks: &'static [Check],
    inner: Inner,
}

/// What is inside of a field.
enum Inner {
    Leaf,
    Object(&'static Type),
    /// The items, and the field that names them.
    List(&'static Type, &'static str),
}

/// What a field accepts. An empty text is an absent one.
enum Check {
    /// Texts that pass.
    Text(fn(&str) -> bool, &'static str),
    /// One word of this list.
    OneOf(&'static [&'static str]),
    /// Numbers from, to.
    Range(i64, i64),
    /// The number of a port, or the name of one.
    Port,
    /// A list of texts, each of which passes.
    Items(fn(&str) -> bool, &'static str),
    /// A map whose keys pass.
    Keys(fn(&str) -> bool, &'static str),
    /// A map whose values pass.
    Values(fn(&str) -> bool, &'static str),
    /// A list whose items differ in one of these fields, where they have the first.
    Unique(&'static [&'static str]),
    /// At most so many items.
    AtMost(usize),
    /// A text that is there is not empty: in Go it is a pointer.
    NotEmpty,
}

/// What the fields of an object must be together.
enum Rule {
    /// The fields of this list are set.
    Required(&'static [&'static str]),
    /// One of these is set.
    One(&'static [&'static str]),
    /// At most one of these is set.
    AtMostOne(&'static [&'static str]),
    /// One field beside the name is set.
    OneSource,
    /// Everything else.
    Relation(fn(&mut Scope<'_, '_, '_>)),
}

/// An object, for [`Rule::Relation`].
struct Scope<'s, 'p, 'a> {
    checker: &'s mut Checker<'p>,
    object: &'a Map<String, Value>,
    place: &'s Place<'s>,
}

impl Scope<'_, '_, '_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.object.lookup(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn is_true(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Reports a fault of a field, or of the object for "".
    fn report(&mut self, key: &str, given: impl Into<String>, accepted: impl Into<String>, fields: &[&str]) {
        let place = self.place.field(key);
        let place = if key.is_empty() { self.place } else { &place };
        self.checker.faults.push(Fault {
            location: Location::of(place),
            fields: fields.iter().map(|&field| field.to_owned()).collect(),
            given: given.into(),
            accepted: accepted.into(),
            remedy: Remedy::Usual,
            enforced_by: Some(EnforcedBy::ApiServer),
            outcome: REFUSED,
        });
    }

    /// Reports a field that is not there.
    fn absent(&mut self, key: &str, accepted: &str) {
        self.report(key, "missing", accepted, &[]);
        self.enforced_by(Some(EnforcedBy::ApiServer), ABSENT);
    }

    /// Gives the last fault a remedy.
    fn remedy(&mut self, remedy: Remedy) {
        if let Some(fault) = self.checker.faults.last_mut() {
            fault.remedy = remedy;
        }
    }

    /// Says who enforces the rule of the last fault: kubelet, or nothing.
    fn enforced_by(&mut self, enforced_by: Option<EnforcedBy>, outcome: &'static str) {
        self.checker.enforced_by(enforced_by, outcome);
    }
}

struct Checker<'p> {
    pod: &'p Value,
    faults: Vec<Fault>,
}

impl Checker<'_> {
    fn object(&mut self, value: &Value, of: &'static Type, place: &Place<'_>) {
        let empty = Map::new();
        let object = match value {
            Value::Object(object) => object,
            // An item of a list: to the API server one without content.
            Value::Null => &empty,
            Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        };
        for (key, value) in object {
            if value.is_null() {
                continue;
            }
            let Some(row) = of.fields.iter().find(|row| is_same_name(row.key, key)) else { continue };
            let place = place.field(key);
            for check in row.checks {
                if let Some((given, accepted)) = check.fault(value) {
                    self.push(&place, check.wrong_key(value), given, accepted);
                }
            }
            match (&row.inner, value) {
                (Inner::Object(of), _) => self.object(value, of, &place),
                (Inner::List(of, key), Value::Array(items)) => {
                    for (index, item) in items.iter().enumerate() {
                        self.object(item, of, &place.item(item, key, index));
                    }
                }
                _ => {}
            }
        }
        for rule in of.rules {
            self.rule(rule, object, place);
        }
    }

    fn rule(&mut self, rule: &Rule, object: &Map<String, Value>, place: &Place<'_>) {
        let set = |key: &&&str| object.lookup(key).is_some_and(|value| !value.is_null());
        match rule {
            Rule::Required(keys) => {
                // Of a number, its range says that it is not 0.
                let missing = |value: &Value| is_zero(value) && !value.is_number();
                for key in keys.iter().filter(|key| object.lookup(key).is_none_or(missing)) {
                    self.push(&place.field(key), Vec::new(), "missing".to_owned(), "a value".to_owned());
                    self.enforced_by(Some(EnforcedBy::ApiServer), ABSENT);
                }
            }
            Rule::One(keys) | Rule::AtMostOne(keys) => {
                let given = keys.iter().filter(set);
                let count = given.clone().count();
                if count > 1 || count == 0 && matches!(rule, Rule::One(_)) {
                    self.one_of(given.map(|key| (*key).to_owned()).collect(), keys, place);
                }
            }
            Rule::OneSource => {
                let given = object.iter().filter(|(key, value)| *key != "name" && !value.is_null());
                let count = given.clone().count();
                if count != 1 {
                    let given = given.map(|(key, _)| key.clone()).collect();
                    self.one_of(given, &["emptyDir", "configMap", "secret", "hostPath", "..."], place);
                }
                if count == 0 {
                    self.enforced_by(None, EMPTY_DIR);
                }
            }
            Rule::Relation(check) => check(&mut Scope { checker: self, object, place }),
        }
    }

    fn one_of(&mut self, given: Vec<String>, keys: &[&str], place: &Place<'_>) {
        let accepted = format!("one of {}", keys.join(", "));
        let is_absent = given.is_empty();
        let shown = if is_absent { "none is set".to_owned() } else { given.join(" and ") };
        self.push(place, given, shown, accepted);
        if is_absent {
            self.enforced_by(Some(EnforcedBy::ApiServer), ABSENT);
        }
    }

    fn push(&mut self, place: &Place<'_>, fields: Vec<String>, given: String, accepted: String) {
        let (location, enforced_by) = (Location::of(place), Some(EnforcedBy::ApiServer));
        self.faults.push(Fault {
            location,
            fields,
            given,
            accepted,
            remedy: Remedy::Usual,
            enforced_by,
            outcome: REFUSED,
        });
    }

    /// Who enforces the rule of the last fault.
    fn enforced_by(&mut self, enforced_by: Option<EnforcedBy>, outcome: &'static str) {
        if let Some(fault) = self.faults.last_mut() {
            (fault.enforced_by, fault.outcome) = (enforced_by, outcome);
        }
    }
}

/// Whether a value counts as absent in Go.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Object(_) => false,
    }
}

impl Check {
    /// The key of a map that is wrong, if one is.
    fn wrong_key(&self, value: &Value) -> Vec<String> {
        let bad = |(key, value): &(&String, &Value)| match self {
            Self::Keys(passes, _) => !passes(key),
            Self::Values(passes, _) => value.as_str().is_some_and(|text| !passes(text)),
            Self::Text(..)
            | Self::OneOf(_)
            | Self::Range(..)
            | Self::Port
            | Self::Items(..)
            | Self::NotEmpty
            | Self::Unique(_)
            | Self::AtMost(_) => false,
        };
        value.as_object().into_iter().flatten().find(bad).map(|(key, _)| key.clone()).into_iter().collect()
    }

    /// What is there and what is accepted, if they differ.
    fn fault(&self, value: &Value) -> Option<(String, String)> {
        let quoted = |text: &str| format!("{text:?}");
        match (self, value) {
            (Self::Text(passes, accepted), Value::String(text)) => {
                (!text.is_empty() && !passes(text)).then(|| (quoted(text), (*accepted).to_owned()))
            }
            (Self::OneOf(words), Value::String(text)) => (!text.is_empty()
                && !words.contains(&text.as_str()))
            .then(|| (quoted(text), words.join(", "))),
            (Self::NotEmpty, Value::String(text)) => {
                text.is_empty().then(|| ("\"\"".to_owned(), "a value, or no such field".to_owned()))
            }
            (Self::Range(from, to), Value::Number(number)) => {
                (!number.as_i64().is_some_and(|n| (*from..=*to).contains(&n)))
                    .then(|| (number.to_string(), range(*from, *to)))
            }
            (Self::Port, Value::Number(number)) => {
                (!number.as_i64().is_some_and(|n| (1..=65535).contains(&n)))
                    .then(|| (number.to_string(), "a port, 1-65535".to_owned()))
            }
            (Self::Port, Value::String(text)) => {
                (!text::port_name(text)).then(|| (quoted(text), format!("the name of a port: {PORT_NAME}")))
            }
            (Self::Items(passes, accepted), Value::Array(items)) => {
                let bad = items.iter().filter_map(Value::as_str).find(|text| !passes(text));
                bad.map(|text| (quoted(text), format!("items that are {accepted}")))
            }
            (Self::Keys(passes, accepted), Value::Object(map)) => {
                let bad = map.keys().find(|key| !passes(key));
                bad.map(|key| (format!("key {key:?}"), format!("keys that are {accepted}")))
            }
            (Self::Values(passes, accepted), Value::Object(map)) => {
                let bad = map.iter().find(|(_, value)| value.as_str().is_some_and(|text| !passes(text)));
                bad.map(|(key, value)| (format!("{key}: {value}"), format!("values that are {accepted}")))
            }
            (Self::Unique(keys), Value::Array(items)) => duplicate(items, keys),
            (Self::AtMost(most), Value::Array(items)) => (items.len() > *most).then(|| {
                let accepted = if *most == 0 { "none".to_owned() } else { format!("at most {most} items") };
                (format!("{} items", items.len()), accepted)
            }),
            _ => None,
        }
    }
}

fn range(from: i64, to: i64) -> String {
    match (from, to) {
        (from, i64::MAX) => format!("{from} or more"),
        (from, to) => format!("{from}-{to}"),
    }
}

/// The first item that is like one before it.
fn duplicate(items: &[Value], keys: &[&str]) -> Option<(String, String)> {
    let (first, others) = keys.split_first()?;
    if differ(items, first) {
        return None;
    }
    let same = |one: &Value, other: &Value, key: &str| one.lookup(key) == other.lookup(key);
    let mut seen = std::collections::HashMap::with_capacity(items.len());
    for item in items {
        let Some(value) = item.lookup(first).filter(|value| !is_zero(value)) else { continue };
        let text = text_of(value);
        let earlier: &mut Vec<&Value> = seen.entry(text).or_default();
        if earlier.iter().any(|earlier| others.iter().all(|key| same(item, earlier, key))) {
            return Some((format!("{first} {value} twice"), format!("another {first} for each item")));
        }
        earlier.push(item);
    }
    None
}

/// Whether no two of a few items have the same value of `key`, as in most lists.
fn differ(items: &[Value], key: &str) -> bool {
    const FEW: usize = 32;
    let mut seen = Vec::with_capacity(items.len());
    let mut values = items.iter().filter_map(|item| item.lookup(key)).filter(|value| !is_zero(value));
    items.len() <= FEW
        && values.all(|value| {
            let text = text_of(value);
            let is_new = !seen.contains(&text);
            seen.push(text);
            is_new
        })
}

/// A value as text: numbers and strings count as the same.
fn text_of(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed)
}
