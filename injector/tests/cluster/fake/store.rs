//! Objects and what happened to them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::apply;

/// Something that happened, for those who watch.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub version: u64,
    pub collection: String,
    pub kind: &'static str,
    pub object: Value,
}

#[derive(Default)]
pub(crate) struct Store {
    version: u64,
    /// By collection and name.
    objects: BTreeMap<String, Value>,
    events: Vec<Event>,
    /// What happened up to then cannot be watched.
    forgotten: u64,
}

/// A refusal, as code and message.
pub(crate) type Refusal = (u16, String);

impl Store {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn object(&self, key: &str) -> Option<&Value> {
        self.objects.get(key)
    }

    pub(crate) fn list(&self, collection: &str) -> impl Iterator<Item = &Value> {
        let collection = collection.to_owned();
        let inside = move |key: &str| key.rsplit_once('/').is_some_and(|(of, _)| within(of, &collection));
        self.objects.iter().filter(move |(key, _)| inside(key)).map(|(_, object)| object)
    }

    /// What happened since, or nothing when that is no longer known.
    pub(crate) fn since(&self, version: u64, collection: &str) -> Option<Vec<Event>> {
        let later = |event: &&Event| event.version > version && within(&event.collection, collection);
        (version >= self.forgotten).then(|| self.events.iter().filter(later).cloned().collect())
    }

    /// Compacts: older versions are expired.
    pub(crate) fn forget(&mut self) {
        self.version += 1;
        self.forgotten = self.version;
    }

    pub(crate) fn put(&mut self, manager: &str, mut object: Value) {
        let key = key_of(&object);
        if let Some(old) = self.objects.get(&key) {
            object["metadata"]["uid"] = old["metadata"]["uid"].clone();
            object["metadata"]["managedFields"] = old["metadata"]["managedFields"].clone();
        }
        apply::owned(&mut object, manager, "Update", json!({}));
        self.write(&key, object);
    }

    pub(crate) fn create(
        &mut self,
        collection: &str,
        mut object: Value,
        manager: &str,
    ) -> Result<Value, Refusal> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = format!("{collection}/{name}");
        if self.objects.contains_key(&key) {
            return Err((409, format!("{key:?} already exists")));
        }
        apply::owned(&mut object, manager, "Update", json!({}));
        Ok(self.write(&key, object))
    }

    pub(crate) fn replace(&mut self, key: &str, mut object: Value, manager: &str) -> Result<Value, Refusal> {
        let old = self.objects.get(key).ok_or_else(|| (404, format!("{key:?} not found")))?;
        let given = &object["metadata"]["resourceVersion"];
        if !given.is_null() && *given != old["metadata"]["resourceVersion"] {
            return Err((409, format!("{key:?}: the object has been modified")));
        }
        if old["immutable"] == true && old["data"] != object["data"] {
            return Err((422, format!("{key:?}: data: field is immutable")));
        }
        object["metadata"]["managedFields"] = old["metadata"]["managedFields"].clone();
        apply::owned(&mut object, manager, "Update", json!({}));
        Ok(self.write(key, object))
    }

    pub(crate) fn apply(
        &mut self,
        key: &str,
        patch: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, Refusal> {
        let old = self.objects.get(key);
        let merged = apply::apply(old, patch, manager, force)?;
        match old {
            Some(old) if apply::same(old, &merged) => Ok(old.clone()),
            _ => Ok(self.write(key, merged)),
        }
    }

    /// A JSON patch: a test that fails is an invalid request.
    pub(crate) fn patch(&mut self, key: &str, patch: Value, manager: &str) -> Result<Value, Refusal> {
        let old = self.objects.get(key).ok_or_else(|| (404, format!("{key:?} not found")))?;
        let patch: json_patch::Patch =
            serde_json::from_value(patch).map_err(|error| (400, error.to_string()))?;
        let mut object = old.clone();
        json_patch::patch(&mut object, &patch).map_err(|error| (422, error.to_string()))?;
        if object == *old {
            return Ok(object);
        }
        apply::owned(&mut object, manager, "Update", json!({}));
        Ok(self.write(key, apply::checked(object)?))
    }

    pub(crate) fn delete(&mut self, key: &str) -> Option<Value> {
        let mut object = self.objects.remove(key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.notify(key, "DELETED", &object);
        Some(object)
    }

    fn write(&mut self, key: &str, mut object: Value) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.version));
        }
        let kind = if self.objects.contains_key(key) { "MODIFIED" } else { "ADDED" };
        self.objects.insert(key.to_owned(), object.clone());
        self.notify(key, kind, &object);
        object
    }

    fn notify(&mut self, key: &str, kind: &'static str, object: &Value) {
        let collection = key.rsplit_once('/').map_or("", |(collection, _)| collection).to_owned();
        self.events.push(Event { version: self.version, collection, kind, object: object.clone() });
    }
}

/// Whether a collection is the one that is asked for, or that of a namespace where all namespaces are.
fn within(collection: &str, asked: &str) -> bool {
    collection == asked || collection.strip_suffix(asked).is_some_and(|all| all.starts_with("namespaces/"))
}

/// `namespaces/x/secrets/y`, or `nodes/y`.
fn key_of(object: &Value) -> String {
    let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = word("/kind").expect("a kind").to_lowercase();
    let plural =
        if kind.ends_with('y') { format!("{}ies", &kind[..kind.len() - 1]) } else { format!("{kind}s") };
    let name = word("/metadata/name").expect("a name");
    match word("/metadata/namespace") {
        Some(namespace) => format!("namespaces/{namespace}/{plural}/{name}"),
        None => format!("{plural}/{name}"),
    }
}
