//! Reads options one by one and collects their errors, so that all are reported together.

use std::collections::HashSet;
use std::hash::Hash;
use std::net::IpAddr;

use crate::cli::{Key, Kind, Origin, RawOptions};

use super::error::{ConfigError, Expected, Warning};
use super::values;

pub(super) struct Reader<'a> {
    pub(super) raw: &'a RawOptions,
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<Warning>,
}

/// A parsed list.
pub(super) enum Items<'a> {
    /// `*` alone.
    All,
    /// The words of the list, perhaps none.
    These(Vec<&'a str>),
}

impl<'a> Reader<'a> {
    pub(super) const fn new(raw: &'a RawOptions) -> Self {
        Self { raw, errors: Vec::new(), warnings: Vec::new() }
    }

    /// The text that counts, trimmed; an empty one counts as not given.
    pub(super) fn text(&self, key: Key) -> &'a str {
        match self.raw.given(key).map(|given| given.text.trim()) {
            None | Some("") => key.spec().default,
            Some(text) => text,
        }
    }

    /// The source of the value if it is given and not empty.
    pub(super) fn given(&self, key: Key) -> Option<Origin> {
        let given = self.raw.given(key)?;
        (!given.text.trim().is_empty()).then(|| given.origin.clone())
    }

    /// The source of the value, or what would give it.
    pub(super) fn origin(&self, key: Key) -> Origin {
        self.raw.given(key).map_or(Origin::Flag(key), |given| given.origin.clone())
    }

    /// Reports two options that conflict each other.
    pub(super) fn conflict(&mut self, one: Key, other: Key, reason: &'static str) {
        let options = vec![self.origin(one), self.origin(other)];
        self.errors.push(ConfigError::Contradiction { options, reason });
    }

    /// Notes a value that does not parse.
    pub(super) fn refuse(&mut self, key: Key, given: &str, expected: Expected) {
        let spec = key.spec();
        let mut expected = expected.or_unquoted(given).or_meant(spec.name, given, spec.words);
        expected.hint = expected.hint.or_else(|| of_another_option(key, given).map(Into::into));
        self.errors.push(ConfigError::Value { origin: self.origin(key), given: given.to_owned(), expected });
    }

    /// One value; `None` after an error.
    pub(super) fn value<T>(&mut self, key: Key, parse: impl Fn(&str) -> Result<T, Expected>) -> Option<T> {
        let text = self.text(key);
        match parse(text) {
            Ok(value) => Some(value),
            Err(expected) => {
                self.refuse(key, text, expected);
                None
            }
        }
    }

    /// One value that may be missing. Also `None` after an error.
    pub(super) fn optional<T>(&mut self, key: Key, parse: impl Fn(&str) -> Result<T, Expected>) -> Option<T> {
        self.given(key)?;
        self.value(key, parse)
    }

    /// False after an error. One that is given as nothing (`--dry-run=`) is an error, as in Istio: the run
    /// would do the opposite of what was meant.
    pub(super) fn boolean(&mut self, key: Key) -> bool {
        self.required(key, values::boolean).unwrap_or_default()
    }

    /// One value that may be missing, but not be given as nothing: a flag (`--pid=`) or config key without a
    /// value is an error, an empty variable counts as unset. Also `None` after an error.
    pub(super) fn required<T>(&mut self, key: Key, parse: impl Fn(&str) -> Result<T, Expected>) -> Option<T> {
        let empty = self.raw.given(key).filter(|given| given.text.trim().is_empty());
        if empty.is_some_and(|given| matches!(given.origin, Origin::Flag(_) | Origin::Document(_))) {
            if let Err(expected) = parse("") {
                self.refuse(key, "", expected);
            }
            return None;
        }
        self.optional(key, parse)
    }

    /// The items of a list.
    pub(super) fn items(&self, key: Key) -> Items<'a> {
        let items: Vec<&str> =
            self.text(key).split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
        if !items.is_empty() && items.iter().all(|item| *item == "*") {
            Items::All
        } else {
            Items::These(items)
        }
    }

    /// Parses each item and drops what is there already.
    pub(super) fn each<T: Clone + Eq + Hash>(
        &mut self,
        key: Key,
        items: &[&str],
        mut parse: impl FnMut(&mut Self, &str) -> Result<T, Expected>,
    ) -> Vec<T> {
        let mut seen = HashSet::new();
        let mut parsed = Vec::new();
        for item in items {
            match parse(self, item) {
                Ok(value) if seen.insert(value.clone()) => parsed.push(value),
                Ok(_) => {}
                Err(expected) => {
                    let is_joined = item.contains(|c: char| c == ';' || c.is_whitespace());
                    let hint =
                        if is_joined { Some("commas separate the items of a list") } else { all(key, item) };
                    self.refuse(
                        key,
                        item,
                        match hint {
                            Some(hint) => expected.hint(hint),
                            None => expected,
                        },
                    );
                }
            }
        }
        parsed
    }

    /// A list in which `*` means nothing special; only empty items are worth a warning.
    pub(super) fn list<T: Clone + Eq + Hash>(
        &mut self,
        key: Key,
        parse: impl FnMut(&mut Self, &str) -> Result<T, Expected>,
    ) -> Vec<T> {
        match self.items(key) {
            Items::All => self.each(key, &["*"], parse),
            Items::These(items) => {
                if items.is_empty() {
                    self.warn_if_empty(key);
                }
                self.each(key, &items, parse)
            }
        }
    }

    /// Warns of a list that is given but has empty items only.
    pub(super) fn warn_if_empty(&mut self, key: Key) {
        if let Some(origin) = self.given(key) {
            let given = self.text(key).to_owned();
            self.warnings.push(Warning::EmptyList { origin, given });
        }
    }

    /// Refuses a list that is given but has empty items only.
    pub(super) fn refuse_empty(&mut self, key: Key, reason: &'static str) {
        self.errors.push(ConfigError::EmptyList {
            origin: self.origin(key),
            given: self.raw.given(key).map_or_else(String::new, |given| given.text.clone()),
            reason,
        });
    }

    /// Warns if `key` is given (a boolean: as true) and `useless` holds.
    pub(super) fn no_effect_if(&mut self, useless: bool, key: Key, reason: &'static str) {
        let says_no = key.spec().kind == Kind::Boolean && values::boolean(self.text(key)) != Ok(true);
        if let Some(origin) = self.given(key).filter(|_| useless && !says_no) {
            self.warnings.push(Warning::NoEffect { origin, reason });
        }
    }
}

/// Whether the word stands for everything in other programs.
pub(super) fn is_everything(item: &str) -> bool {
    ["all", "any"].iter().any(|word| item.eq_ignore_ascii_case(word))
}

/// What is meant by a word for everything, in a list in which that is `*`.
fn all(key: Key, item: &str) -> Option<&'static str> {
    let has_all = [Key::ServiceCidr, Key::InboundPorts, Key::OutboundOwnerGroups].contains(&key);
    let hint = if has_all {
        "`*` means all"
    } else if key == Key::OutboundPorts {
        "to capture every port, give `*` to --istio-service-cidr (-i)"
    } else {
        return None;
    };
    is_everything(item).then_some(hint)
}

/// What is meant by a value of another option's kind.
fn of_another_option(key: Key, given: &str) -> Option<&'static str> {
    let is_name = given.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_interface = is_name
        && given.chars().all(|c| c.is_ascii_alphanumeric())
        && given.ends_with(|last: char| last.is_ascii_digit());
    let address = given.split_once('/').map_or(given, |(address, _)| address);
    if given.contains("e+") {
        return Some("a template has made a float of the number: quote it there");
    }
    if matches!(key, Key::ProxyUid | Key::ProxyGid) && is_name {
        return Some("the variable ENVOY_USER takes a name");
    }
    if key.spec().kind != Kind::List {
        return None;
    }
    if is_interface {
        return Some("-c excludes an interface");
    }
    let is_of_ranges = matches!(key, Key::ServiceCidr | Key::ServiceExcludeCidr);
    let is_range = !is_of_ranges && address.parse::<IpAddr>().is_ok();
    is_range.then_some("-i captures ranges, -x excludes them")
}
