//! Slices and maps: over JSON, or made by a template.

use crate::value::schema::{is_same_name, kind_name};
use crate::value::text::{Origin, Str};
use crate::value::{List, Map, OwnList, OwnMap, Value};
use serde_json::{Map as JsonMap, Value as Json};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

impl<'a> List<'a> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json { items, .. } => items.map_or(0, <[Json]>::len),
            Self::Own(own) => own.items.len(),
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is the nil slice.
    #[must_use]
    pub const fn is_nil(&self) -> bool {
        matches!(self, Self::Json { items: None, .. })
    }

    /// The element at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json { items, elem, origin } => {
                Some(Value::typed(Some(items.as_ref()?.get(index)?), elem, *origin))
            }
            Self::Own(own) => own.items.get(index).cloned(),
        }
    }

    /// All elements.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Value<'a>> {
        (0..self.len()).filter_map(|i| self.get(i)).collect()
    }

    /// Go's name of the elements' type.
    #[must_use]
    pub fn elem_name(&self) -> Cow<'static, str> {
        match self {
            Self::Json { elem, .. } => kind_name(elem),
            Self::Own(own) => own.elem.into(),
        }
    }

    /// The elements from `start` to `end`.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        match self {
            Self::Json { items, elem, origin } => Self::Json {
                items: items.map(|i| i.get(start..end).unwrap_or_default()),
                elem,
                origin: *origin,
            },
            Self::Own(own) => {
                let items = own.items.get(start..end).unwrap_or_default().to_vec();
                Self::Own(Rc::new(OwnList { items, elem: own.elem }))
            }
        }
    }
}

impl<'a> Map<'a> {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json { entries, .. } => entries.map_or(0, JsonMap::len),
            Self::Own(own) => own.entries.borrow().len(),
        }
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is the nil map.
    #[must_use]
    pub const fn is_nil(&self) -> bool {
        matches!(self, Self::Json { entries: None, .. })
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        match self {
            Self::Json { entries, elem, origin } => {
                let (key, json) = entry((*entries)?, key)?;
                let origin = origin.map(|o| Origin { kind: o.kind, key });
                Some(Value::typed(Some(json), elem, origin))
            }
            Self::Own(own) => own.entries.borrow().get(key).cloned(),
        }
    }

    /// What Go gives for a key that is not there: the zero value of the values' type.
    #[must_use]
    pub fn zero(&self) -> Value<'a> {
        match self {
            Self::Json { elem, .. } => Value::typed(None, elem, None),
            Self::Own(own) if own.elem == "string" => Value::Str(Str::borrowed("")),
            Self::Own(_) => Value::Null,
        }
    }

    /// All entries, sorted by key.
    #[must_use]
    pub fn entries(&self) -> Vec<(Str<'a>, Value<'a>)> {
        match self {
            Self::Json { entries: None, .. } => Vec::new(),
            Self::Json { entries: Some(entries), elem, origin } => {
                let mut all: Vec<_> = entries.iter().collect();
                all.sort_unstable_by_key(|(key, _)| *key);
                let value = |(key, json): (&'a String, &'a Json)| {
                    let origin = origin.map(|o| Origin { kind: o.kind, key });
                    (Str::borrowed(key).tainted(origin), Value::typed(Some(json), elem, origin))
                };
                all.into_iter().map(value).collect()
            }
            Self::Own(own) => own.entries.borrow().iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        }
    }

    /// Go's name of the values' type.
    #[must_use]
    pub fn elem_name(&self) -> Cow<'static, str> {
        match self {
            Self::Json { elem, .. } => kind_name(elem),
            Self::Own(own) => own.elem.into(),
        }
    }

    /// The entries to change in place; `None` for a map that is shared input.
    pub(crate) fn own(&self) -> Option<&Rc<OwnMap<'a>>> {
        match self {
            Self::Own(own) => Some(own),
            Self::Json { .. } => None,
        }
    }
}

impl<'a> OwnList<'a> {
    /// A slice with elements of the Go type `elem`.
    pub(crate) const fn new(items: Vec<Value<'a>>, elem: &'static str) -> Self {
        Self { items, elem }
    }
}

impl<'a> OwnMap<'a> {
    /// A map with values of the Go type `elem`.
    pub(crate) const fn new(entries: BTreeMap<Str<'a>, Value<'a>>, elem: &'static str) -> Self {
        Self { entries: RefCell::new(entries), elem }
    }

    /// Adds or replaces an entry; the caller has made sure that `value` does not contain this map.
    pub(crate) fn insert(&self, key: Str<'a>, value: Value<'a>) {
        let before = self.entries.borrow_mut().insert(key, value);
        drop(before);
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, key: &str) {
        let before = self.entries.borrow_mut().remove(key);
        drop(before);
    }
}

/// The entry of a key. In a small map a look at all keys takes less time than hashing one.
pub(crate) fn entry<'a>(map: &'a JsonMap<String, Json>, key: &str) -> Option<(&'a String, &'a Json)> {
    const SMALL: usize = 12;
    if map.len() > SMALL {
        map.get_key_value(key)
    } else {
        map.iter().find(|(other, _)| is_same_name(other, key))
    }
}

/// Long chains of collections are taken apart one by one: dropping them recursively could exhaust the stack.
fn drop_flat(mut pending: Vec<Value<'_>>) {
    while let Some(value) = pending.pop() {
        match value {
            Value::List(List::Own(own)) => {
                if let Some(mut own) = Rc::into_inner(own) {
                    pending.append(&mut own.items);
                }
            }
            Value::Map(Map::Own(own)) => {
                if let Some(own) = Rc::into_inner(own) {
                    pending.extend(std::mem::take(&mut *own.entries.borrow_mut()).into_values());
                }
            }
            _ => {}
        }
    }
}

impl Drop for OwnList<'_> {
    fn drop(&mut self) {
        drop_flat(std::mem::take(&mut self.items));
    }
}

impl Drop for OwnMap<'_> {
    fn drop(&mut self) {
        drop_flat(std::mem::take(self.entries.get_mut()).into_values().collect());
    }
}
