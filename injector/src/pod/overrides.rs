//! `proxy.istio.io/overrides`: the user's own versions of containers that a template defines too.

use gotemplate::{Kind, Schema};
use serde_json::{Map, Value, json};

use super::annotations::AnnotationError;
use super::list::{List, annotation, find};
use super::{AUTO_IMAGE, list};
use crate::annotations::keys;
use crate::path::Lookup as _;
use crate::schema::{self, check, pointee};

/// The user's containers that win over the template's.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Overrides {
    /// For `spec.containers`.
    pub containers: Vec<Value>,
    /// For `spec.initContainers`.
    pub init_containers: Vec<Value>,
}

impl Overrides {
    /// Reads the annotation; nothing if there is none.
    /// Errors: what is wrong with its text.
    pub(crate) fn of(pod: &Value) -> Result<Self, AnnotationError> {
        let Some(text) = annotation(pod, keys::OVERRIDES) else {
            return Ok(Self::default());
        };
        let parsed: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| AnnotationError::NotAccepted {
                key: keys::OVERRIDES.to_owned(),
                given: text.to_owned(),
                expected: "a JSON object with the lists containers and initContainers".to_owned(),
            })?;
        let spec = json!({ "spec": parsed });
        if let Some(error) = check::pod(&spec, "/metadata", "/spec").into_iter().next() {
            return Err(AnnotationError::Malformed { key: keys::OVERRIDES, error });
        }
        let read = |list| list::containers(&spec, list).to_vec();
        Ok(Self { containers: read(List::Containers), init_containers: read(List::InitContainers) })
    }

    /// The overrides of one list.
    pub(crate) fn list(&self, list: List) -> &[Value] {
        match list {
            List::Containers => &self.containers,
            List::InitContainers => &self.init_containers,
        }
    }

    /// The override of this name, in whichever list.
    pub(crate) fn find(&self, container: &str) -> Option<&Value> {
        List::BOTH.into_iter().find_map(|list| find(self.list(list), container))
    }

    /// Notes one.
    pub(crate) fn push(&mut self, list: List, container: Value) {
        match list {
            List::Containers => self.containers.push(container),
            List::InitContainers => self.init_containers.push(container),
        }
    }

    /// The annotation's text; `None` if there is nothing to note.
    pub(crate) fn to_json(&self) -> Option<String> {
        let mut object = Map::new();
        for list in List::BOTH {
            if !self.list(list).is_empty() {
                object.insert(list.key().to_owned(), Value::Array(self.list(list).to_vec()));
            }
        }
        (!object.is_empty()).then(|| Value::Object(object).to_string())
    }
}

/// The user's container in the pod that has the same name as a template's: one of `spec.containers`, and for
/// an init container of the template also one of `spec.initContainers`.
pub(crate) fn user_container<'a>(pod: &'a Value, list: List, container: &str) -> Option<&'a Value> {
    let own = find(list::containers(pod, List::Containers), container);
    own.or_else(|| match list {
        List::Containers => None,
        List::InitContainers => find(list::containers(pod, List::InitContainers), container),
    })
}

/// The user's container as it wins over the template's: `image: auto`, and zero values of fields that are not
/// pointers in Go, are left out.
pub(crate) fn overlay_of(container: &Value) -> Value {
    let mut overlay = container.as_object().cloned().unwrap_or_default();
    if overlay.lookup("image").and_then(Value::as_str) == Some(AUTO_IMAGE) {
        overlay.shift_remove("image");
    }
    drop_zero(&mut overlay, &schema::CONTAINER);
    overlay.entry("resources").or_insert_with(|| Value::Object(Map::new()));
    Value::Object(overlay)
}

/// What Go's `omitempty` leaves out.
fn drop_zero(object: &mut Map<String, Value>, of: &Schema) {
    fn within(value: &mut Value, kind: Kind) {
        match (value, pointee(kind)) {
            (Value::Object(object), Kind::Struct(of)) => drop_zero(object, of),
            (Value::Array(items), Kind::List(of)) => items.iter_mut().for_each(|item| within(item, *of)),
            _ => {}
        }
    }
    for field in of.fields {
        match (object.get_mut(field.key), field.kind) {
            (Some(value), kind) => within(value, kind),
            (None, Kind::Struct(embedded)) if field.key.is_empty() => drop_zero(object, embedded),
            _ => {}
        }
    }
    object.retain(|key, value| {
        let plain = of.by_key(key).filter(|field| field.omit_empty && !matches!(field.kind, Kind::Ptr(_)));
        let zero = match value {
            Value::Array(items) => items.is_empty(),
            Value::Bool(flag) => !*flag,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::Object(map) => {
                map.is_empty() && plain.is_some_and(|field| matches!(field.kind, Kind::Map(_)))
            }
            Value::Null | Value::String(_) => *value == "",
        };
        !(value.is_null() || zero && plain.is_some())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_and_empty_lists_are_left_out() {
        let container =
            json!({"name": "istio-proxy", "image": "auto", "args": [], "env": [{"name": "A"}], "tty": false});
        let expected = json!({"name": "istio-proxy", "env": [{"name": "A"}], "resources": {}});
        assert_eq!(overlay_of(&container), expected);
        assert_eq!(overlay_of(&expected), expected);
        let zeros = json!({
            "env": [{"name": "A", "value": ""}], "readinessProbe": {"timeoutSeconds": 0, "httpGet": {"path": "", "port": 1}},
            "securityContext": {"capabilities": {"drop": []}, "privileged": false, "runAsUser": 0}, "stdin": false,
        });
        let kept = json!({
            "env": [{"name": "A"}], "readinessProbe": {"httpGet": {"port": 1}},
            "securityContext": {"capabilities": {}, "privileged": false, "runAsUser": 0}, "resources": {},
        });
        assert_eq!(overlay_of(&zeros), kept);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut overrides = Overrides::default();
        assert_eq!(overrides.to_json(), None);
        overrides.push(List::InitContainers, json!({"name": "istio-proxy"}));
        let text = overrides.to_json().unwrap();
        assert_eq!(text, r#"{"initContainers":[{"name":"istio-proxy"}]}"#);
        let pod = json!({"metadata": {"annotations": {(keys::OVERRIDES): text}}});
        assert_eq!(Overrides::of(&pod), Ok(overrides));
    }

    #[test]
    fn bad_annotation_is_an_error() {
        for text in [
            "",
            "{",
            "[]",
            r#"{"containers":7}"#,
            r#"{"containers":[{}]}"#,
            r#"{"containers":[{"name":"a","env":7}]}"#,
        ] {
            let pod = json!({"metadata": {"annotations": {(keys::OVERRIDES): text}}});
            assert!(Overrides::of(&pod).unwrap_err().to_string().contains(keys::OVERRIDES), "{text}");
        }
    }
}
