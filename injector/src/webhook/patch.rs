//! A JSON patch (RFC 6902) that says no more than what changed.
//!
//! Items of a list are told apart by their name, path or port: an item that comes or goes leaves its neighbours alone.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value};

/// What makes an item of a list that item, the first that does for all items.
const IDENTITIES: [&str; 3] = ["name", "mountPath", "containerPort"];

/// One step of a patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation<'a> {
    /// Puts a value in; in a list, what stands there moves on.
    Add {
        /// Where.
        path: String,
        /// What.
        value: &'a Value,
    },
    /// Takes a value out and puts it in elsewhere.
    Move {
        /// From where.
        from: String,
        /// Where to, after it was taken out.
        path: String,
    },
    /// Takes a value out.
    Remove {
        /// Where.
        path: String,
    },
    /// Puts a value in place of another.
    Replace {
        /// Where.
        path: String,
        /// What.
        value: &'a Value,
    },
}

/// The steps that make `new` of `old`.
#[must_use]
pub fn between<'a>(old: &'a Value, new: &'a Value) -> Vec<Operation<'a>> {
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
                    let end = self.path.len();
                    self.path = self.key(key);
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
        for identity in IDENTITIES {
            if let (Some(old_ids), Some(new_ids)) = (identities(old, identity), identities(new, identity)) {
                return self.named(old, new, &old_ids, &new_ids);
            }
        }
        self.unnamed(old, new);
    }

    /// Items without an identity: those between the equal ones at both ends are changed in place.
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

    /// First what goes, then place by place what comes or moves, then what changes inside.
    fn named(&mut self, old: &'a [Value], new: &'a [Value], old_ids: &Ids<'a>, new_ids: &Ids<'a>) {
        let mut order = Vec::with_capacity(new.len());
        for id in &old_ids.list {
            if new_ids.places.contains_key(id) {
                order.push(*id);
            } else {
                // Those before it that went have moved it to where the order ends now.
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

    /// The item at `at` belongs further back: behind the nearest of those that are to stand before it.
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

    fn key(&self, key: &str) -> String {
        let mut path = String::with_capacity(self.path.len() + key.len() + 1);
        path.push_str(&self.path);
        path.push('/');
        for c in key.chars() {
            match c {
                '~' => path.push_str("~0"),
                '/' => path.push_str("~1"),
                other => path.push(other),
            }
        }
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

/// What `key` is in each item, if it is there in all of them, and different.
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
