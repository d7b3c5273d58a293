//! `istio-iptables/injected-fields`: a digest of each field that the webhook wrote into the containers of an
//! injection.
//!
//! The API server calls the webhook again if other webhooks have changed the pod. If the templates still give
//! the recorded value and the field differs, another writer has changed it, and its value stays.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::list::{List, annotation, containers, name};
use super::status::Status;
use crate::annotations::keys;

/// Enough to notice a change; a collision keeps the value that is in the pod.
const DIGEST_BYTES: usize = 4;

/// By container and field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InjectedFields(BTreeMap<String, BTreeMap<String, String>>);

impl InjectedFields {
    /// Reads the annotation; `None` if there is none or it cannot be read: then the templates take
    /// precedence.
    pub(crate) fn noted(pod: &Value) -> Option<Self> {
        serde_json::from_str(annotation(pod, keys::INJECTED_FIELDS)?).ok().map(Self)
    }

    /// What an injection has written; `status` names its containers.
    pub(crate) fn of(pod: &Value, status: &Status) -> Self {
        let mut all = BTreeMap::new();
        for list in List::BOTH {
            for container in containers(pod, list).iter().filter(|item| status.lists(list, name(item))) {
                let fields =
                    container.as_object().into_iter().flatten().filter(|(field, _)| *field != "name");
                let fields = fields.map(|(field, value)| (field.clone(), digest(value))).collect();
                all.insert(name(container).to_owned(), fields);
            }
        }
        Self(all)
    }

    /// Whether anything is noted about a container.
    pub(crate) fn has(&self, container: &str) -> bool {
        self.0.contains_key(container)
    }

    /// Takes over what others changed in a container. `written` is what the templates give now, `current`
    /// what the pod has.
    pub(crate) fn keep_changes(&self, container: &mut Value, written: &Value, current: &Value) {
        let noted = self.0.get(name(written)).into_iter().flatten();
        let same =
            noted.filter(|(field, noted)| written.get(field).is_some_and(|value| digest(value) == **noted));
        let Some(fields) = container.as_object_mut() else { return };
        for (field, _) in same {
            match current.get(field) {
                Some(value) => fields.insert(field.clone(), value.clone()),
                None => fields.shift_remove(field),
            };
        }
    }

    /// The annotation's text.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

/// The start of a digest that does not depend on the order of keys.
fn digest(value: &Value) -> String {
    let mut sorted = Vec::with_capacity(256);
    write_sorted(value, &mut sorted);
    let digest = Sha256::digest(&sorted);
    let mut text = String::with_capacity(2 * DIGEST_BYTES);
    for byte in digest.iter().take(DIGEST_BYTES) {
        text.extend([byte >> 4, byte & 15].into_iter().filter_map(|half| char::from_digit(half.into(), 16)));
    }
    text
}

/// JSON with the keys in order, without a sorted copy of the value: every field of every injected container
/// is written so.
fn write_sorted(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Object(fields) => {
            if fields.keys().is_sorted() {
                return write_fields(fields.iter(), to);
            }
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            write_fields(fields.into_iter(), to);
        }
        Value::Array(items) => {
            to.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    to.push(b',');
                }
                write_sorted(item, to);
            }
            to.push(b']');
        }
        Value::String(text) => write_text(text, to),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // Writing to memory does not fail.
            let _ = serde_json::to_writer(to, value);
        }
    }
}

fn write_fields<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>, to: &mut Vec<u8>) {
    to.push(b'{');
    for (index, (key, value)) in fields.enumerate() {
        if index > 0 {
            to.push(b',');
        }
        write_text(key, to);
        to.push(b':');
        write_sorted(value, to);
    }
    to.push(b'}');
}

/// Most texts have nothing to escape.
fn write_text(text: &str, to: &mut Vec<u8>) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        to.push(b'"');
        to.extend_from_slice(text.as_bytes());
        to.push(b'"');
    } else {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(to, text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let status = Status { containers: vec!["istio-proxy".to_owned()], ..Status::default() };
        let pod = json!({"spec": {"containers": [
            {"name": "web", "image": "w"}, {"name": "istio-proxy", "image": "p", "resources": {"limits": {}, "requests": {}}},
        ]}});
        let fields = InjectedFields::of(&pod, &status);
        assert!(fields.has("istio-proxy") && !fields.has("web"));
        let text = fields.to_json();
        assert_eq!(text, r#"{"istio-proxy":{"image":"1fb680aa","resources":"675194c7"}}"#);
        let pod = json!({"metadata": {"annotations": {(keys::INJECTED_FIELDS): text}}});
        assert_eq!(InjectedFields::noted(&pod), Some(fields));
        for text in ["", "{", "[]", "7", r#"{"istio-proxy":{"image":7}}"#] {
            let pod = json!({"metadata": {"annotations": {(keys::INJECTED_FIELDS): text}}});
            assert_eq!(InjectedFields::noted(&pod), None, "{text}");
        }
    }

    #[test]
    fn digests_do_not_depend_on_the_order_of_keys() {
        assert_eq!(
            digest(&json!({"a": [{"b": 1, "c": 2}], "d": 3})),
            digest(&json!({"d": 3, "a": [{"c": 2, "b": 1}]}))
        );
        assert_ne!(digest(&json!(["a", "b"])), digest(&json!(["b", "a"])));
    }

    #[test]
    fn what_is_digested_is_json_with_sorted_keys() {
        let value = json!({"b": [], "a": [null, true, -1, 1.5, "\"é\n"], "d": {}, "c": {"y": {"2": 0, "10": 0}, "x": [{}, [1]]}});
        let mut written = Vec::new();
        write_sorted(&value, &mut written);
        let mut sorted = value;
        sorted.sort_all_objects();
        assert_eq!(String::from_utf8(written).unwrap(), sorted.to_string());
    }

    #[test]
    fn a_changed_field_stays_where_the_templates_give_what_they_gave() {
        let status = Status { containers: vec!["p".to_owned()], ..Status::default() };
        let then = json!({"name": "p", "image": "x", "args": ["a"], "tty": true, "resources": {"limits": {"cpu": 1}}});
        let noted = InjectedFields::of(&json!({"spec": {"containers": [then]}}), &status);
        let now = json!({"name": "p", "image": "x", "args": ["b"], "tty": true, "resources": {"limits": {"cpu": 1}}});
        let current =
            json!({"name": "p", "image": "mirror/x", "args": ["c"], "resources": {}, "stdin": true});
        let mut merged = json!({"name": "p", "image": "x", "args": ["b"], "tty": true, "resources": {"limits": {"cpu": 1}}, "stdin": true});
        noted.keep_changes(&mut merged, &now, &current);
        assert_eq!(
            merged,
            json!({"name": "p", "image": "mirror/x", "args": ["b"], "resources": {}, "stdin": true})
        );
    }
}
