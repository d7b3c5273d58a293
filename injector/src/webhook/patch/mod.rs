//! The difference between two values as a minimal JSON patch (RFC 6902).
//!
//! Items of a list are matched by name, path or port, so that an added or removed item does not change its
//! neighbours.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value};

/// Keys that identify the items of an array: the first one that all items have, with different values.
const IDENTITIES: [&str; 3] = ["name", "mountPath", "containerPort"];

/// One operation of a patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum Operation<'a> {
    /// Inserts a value; in an array, before the item at that index.
    Add { path: String, value: &'a Value },
    /// Moves a value to a path as it is after its removal.
    Move { from: String, path: String },
    /// Removes a value.
    Remove { path: String },
    /// Replaces a value.
    Replace { path: String, value: &'a Value },
}

/// The operations that turn `old` into `new`.
pub(super) fn between<'a>(old: &'a Value, new: &'a Value) -> Vec<Operation<'a>> {
    let mut patch = Patch { path: String::new(), operations: Vec::new() };
    patch.values(old, new);
    patch.operations
}

struct Patch<'a> {
    path: String,
    operations: Vec<Operation<'a>>,
}

impl<'a> Patch<'a> {
    fn values(&mut self, old: &'a Value, new: &'a Value) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => self.maps(old, new),
            (Value::Array(old), Value::Array(new)) => self.lists(old, new),
            _ if old == new => {}
            _ => self.operations.push(Operation::Replace { path: self.path.clone(), value: new }),
        }
    }

    fn maps(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>) {
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            let path = self.key(key);
            self.operations.push(Operation::Remove { path });
        }
        for (key, value) in new {
            match old.get(key) {
                Some(old) => {
                    let end = self.push_key(key);
                    self.values(old, value);
                    self.path.truncate(end);
                }
                None => {
                    let path = self.key(key);
                    self.operations.push(Operation::Add { path, value });
                }
            }
        }
    }

    fn lists(&mut self, old: &'a [Value], new: &'a [Value]) {
        // Most arrays are equal, and comparing them is cheaper than hashing their keys.
        if old == new {
            return;
        }
        for identity in IDENTITIES {
            if let (Some(old_ids), Some(new_ids)) = (identities(old, identity), identities(new, identity)) {
                return self.named(old, new, &old_ids, &new_ids);
            }
        }
        self.unnamed(old, new);
    }

    /// Items without a key: those between equal ones at both ends are changed in place.
    fn unnamed(&mut self, old: &'a [Value], new: &'a [Value]) {
        let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let (old, new) = (old.get(start..).unwrap_or_default(), new.get(start..).unwrap_or_default());
        let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        let (old_count, new_count) = (old.len() - end, new.len() - end);
        for at in (new_count..old_count).rev() {
            let path = self.index(start + at);
            self.operations.push(Operation::Remove { path });
        }
        let both = old_count.min(new_count);
        for (at, (old, new)) in old.iter().zip(new).take(both).enumerate() {
            self.item(start + at, old, new);
        }
        for (at, value) in new.iter().enumerate().take(new_count).skip(both) {
            let path = self.index(start + at);
            self.operations.push(Operation::Add { path, value });
        }
    }

    /// First removals, then additions and moves index by index, then changes inside of items.
    fn named(&mut self, old: &'a [Value], new: &'a [Value], old_ids: &Ids<'a>, new_ids: &Ids<'a>) {
        let mut order = Vec::with_capacity(new.len());
        for id in &old_ids.list {
            if new_ids.places.contains_key(id) {
                order.push(*id);
            } else {
                // Its index after the removals before it.
                let path = self.index(order.len());
                self.operations.push(Operation::Remove { path });
            }
        }
        for (at, (value, id)) in new.iter().zip(&new_ids.list).enumerate() {
            if order.get(at) == Some(id) {
                continue;
            }
            if !old_ids.places.contains_key(id) {
                let path = self.index(at);
                self.operations.push(Operation::Add { path, value });
                order.insert(at, *id);
                continue;
            }
            let from = order.iter().position(|other| other == id).unwrap_or(at);
            let displaced = order.get(at).copied().filter(|_| from == at + 1);
            match displaced {
                Some(other) => self.send(&mut order, at, other, new_ids),
                None => self.shift(&mut order, from, at),
            }
        }
        for (at, (new, id)) in new.iter().zip(&new_ids.list).enumerate() {
            if let Some(old) = old_ids.places.get(id).and_then(|place| old.get(*place)) {
                self.item(at, old, new);
            }
        }
    }

    /// The item at `at` belongs further back: behind the last of the items that precede it in the new order.
    fn send(&mut self, order: &mut Vec<Id<'a>>, at: usize, item: Id<'a>, new_ids: &Ids<'a>) {
        let rank = |id: &Id<'a>| new_ids.places.get(id).copied().unwrap_or(usize::MAX);
        let own = rank(&item);
        let before = order.iter().enumerate().skip(at + 1).filter(|(_, id)| rank(id) < own);
        let to = before.max_by_key(|(_, id)| rank(id)).map_or(at, |(place, _)| place);
        self.shift(order, at, to);
    }

    fn shift(&mut self, order: &mut Vec<Id<'a>>, from: usize, to: usize) {
        if from == to || from >= order.len() {
            return;
        }
        let item = order.remove(from);
        order.insert(to, item);
        let (from, path) = (self.index(from), self.index(to));
        self.operations.push(Operation::Move { from, path });
    }

    fn item(&mut self, at: usize, old: &'a Value, new: &'a Value) {
        let end = self.path.len();
        let _ = write!(self.path, "/{at}");
        self.values(old, new);
        self.path.truncate(end);
    }

    /// Appends a key to the path; the length of the path before.
    fn push_key(&mut self, key: &str) -> usize {
        let end = self.path.len();
        self.path.push('/');
        if key.contains(['~', '/']) {
            self.path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        } else {
            self.path.push_str(key);
        }
        end
    }

    /// The path of a key.
    fn key(&mut self, key: &str) -> String {
        let end = self.push_key(key);
        let path = self.path.clone();
        self.path.truncate(end);
        path
    }

    fn index(&self, at: usize) -> String {
        format!("{}/{at}", self.path)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id<'a> {
    Number(i64),
    Text(&'a str),
}

struct Ids<'a> {
    list: Vec<Id<'a>>,
    places: HashMap<Id<'a>, usize>,
}

/// The value of `key` in each item, if all have it and all differ.
fn identities<'a>(items: &'a [Value], key: &str) -> Option<Ids<'a>> {
    let id = |item: &'a Value| match item.get(key)? {
        Value::String(text) => Some(Id::Text(text)),
        Value::Number(number) => number.as_i64().map(Id::Number),
        Value::Array(_) | Value::Bool(_) | Value::Null | Value::Object(_) => None,
    };
    let list: Vec<Id<'a>> = items.iter().map(id).collect::<Option<_>>()?;
    let places: HashMap<Id<'a>, usize> = list.iter().copied().zip(0..).collect();
    (places.len() == list.len()).then_some(Ids { list, places })
}

#[cfg(test)]
mod tests;
