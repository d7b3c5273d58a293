//! `proxy.istio.io/overrides`: the user's own versions of containers that a template defines too.

use serde_json::{Map, Value, json};

use super::annotations::AnnotationError;
use super::list::{List, annotation, find};
use super::{AUTO_IMAGE, list};
use crate::annotations::keys;
use crate::schema::check;

/// The user's containers that win over the template's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// For `spec.containers`.
    pub containers: Vec<Value>,
    /// For `spec.initContainers`.
    pub init_containers: Vec<Value>,
}

impl Overrides {
    /// Reads the annotation; nothing if there is none.
    ///
    /// # Errors
    ///
    /// What is wrong with its text.
    pub fn of(pod: &Value) -> Result<Self, AnnotationError> {
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
    #[must_use]
    pub fn list(&self, list: List) -> &[Value] {
        match list {
            List::Containers => &self.containers,
            List::InitContainers => &self.init_containers,
        }
    }

    /// The override of this name, in whichever list.
    #[must_use]
    pub fn find(&self, container: &str) -> Option<&Value> {
        List::BOTH.into_iter().find_map(|list| find(self.list(list), container))
    }

    /// Notes one.
    pub fn push(&mut self, list: List, container: Value) {
        match list {
            List::Containers => self.containers.push(container),
            List::InitContainers => self.init_containers.push(container),
        }
    }

    /// The annotation's text; `None` if there is nothing to note.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        let mut object = Map::new();
        for list in List::BOTH {
            if !self.list(list).is_empty() {
                object.insert(list.key().to_owned(), Value::Array(self.list(list).to_vec()));
            }
        }
        (!object.is_empty()).then(|| Value::Object(object).to_string())
    }
}

/// The user's container in the pod that has the same name as a template's: one of `spec.containers`, and for an init
/// container of the template also one of `spec.initContainers`.
#[must_use]
pub fn user_container<'a>(pod: &'a Value, list: List, container: &str) -> Option<&'a Value> {
    let own = find(list::containers(pod, List::Containers), container);
    own.or_else(|| match list {
        List::Containers => None,
        List::InitContainers => find(list::containers(pod, List::InitContainers), container),
    })
}

/// The user's container as it wins over the template's: `image: auto` and empty lists say nothing.
#[must_use]
pub fn overlay_of(container: &Value) -> Value {
    let mut overlay = Map::new();
    for (key, value) in container.as_object().into_iter().flatten() {
        let says_nothing = match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::String(text) => text.is_empty() || key == "image" && text == AUTO_IMAGE,
            Value::Bool(flag) => !flag,
            Value::Number(_) | Value::Object(_) => false,
        };
        if !says_nothing {
            overlay.insert(key.clone(), value.clone());
        }
    }
    overlay.entry("resources").or_insert_with(|| Value::Object(Map::new()));
    Value::Object(overlay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_and_empty_lists_say_nothing() {
        let container =
            json!({"name": "istio-proxy", "image": "auto", "args": [], "env": [{"name": "A"}], "tty": false});
        let expected = json!({"name": "istio-proxy", "env": [{"name": "A"}], "resources": {}});
        assert_eq!(overlay_of(&container), expected);
        assert_eq!(overlay_of(&expected), expected);
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
    fn a_bad_annotation_is_an_error() {
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
