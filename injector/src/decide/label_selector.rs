//! Kubernetes' label selectors (`matchLabels`, `matchExpressions`).

use std::fmt;

use serde_json::{Map, Value};

use crate::path::FieldError;
use crate::validity::{label_value, qualified_name};

/// A label selector: every requirement must be met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    DoesNotExist,
    Exists,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    /// Reads a `LabelSelector` object; null is the empty selector.
    ///
    /// # Errors
    ///
    /// The key that cannot be read, its value, and what is accepted.
    pub fn parse(value: &Value) -> Result<Self, FieldError> {
        let mut requirements = Vec::new();
        if value.is_null() {
            return Ok(Self::default());
        }
        if !value.is_object() {
            return Err(FieldError::new("", value, "a label selector"));
        }
        for (key, wanted) in
            given(value, "matchLabels", "a map of labels", Value::as_object)?.into_iter().flatten()
        {
            let wanted = scalar(wanted)
                .ok_or_else(|| FieldError::new(&format!("matchLabels.{key}"), wanted, "a string"))?;
            requirements.push(Requirement { key: key.clone(), operator: Operator::In(vec![wanted]) });
        }
        let expressions = given(value, "matchExpressions", "a list of requirements", Value::as_array)?;
        for (at, expression) in expressions.into_iter().flatten().enumerate() {
            let requirement = Requirement::parse(expression);
            requirements.push(requirement.map_err(|error| error.below(&format!("matchExpressions[{at}]")))?);
        }
        Ok(Self { requirements })
    }

    /// A key or value that no label can have: Kubernetes refuses such a selector as a whole.
    pub(crate) fn impossible(&self) -> Option<String> {
        self.requirements.iter().find_map(|one| {
            let values = match &one.operator {
                Operator::In(values) | Operator::NotIn(values) => values.as_slice(),
                Operator::DoesNotExist | Operator::Exists => &[],
            };
            let value = values.iter().find(|value| !label_value(value));
            if qualified_name(&one.key) {
                value.map(|value| format!("{value:?} is not the value of a label"))
            } else {
                Some(format!("{:?} is not the key of a label", one.key))
            }
        })
    }

    /// The keys of a selector that mean nothing.
    pub(crate) fn unknown_keys(value: &Value) -> impl Iterator<Item = &String> {
        let keys = value.as_object().into_iter().flat_map(Map::keys);
        keys.filter(|key| !matches!(key.as_str(), "matchExpressions" | "matchLabels"))
    }

    /// Whether it has no requirements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels meet every requirement.
    #[must_use]
    pub fn matches(&self, labels: &dyn Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.met(labels))
    }

    /// The requirements that the labels do not meet, with what the labels have instead.
    #[must_use]
    pub fn unmet(&self, labels: &dyn Labels) -> Vec<String> {
        let unmet = self.requirements.iter().filter(|requirement| !requirement.met(labels));
        unmet
            .map(|requirement| match labels.label(&requirement.key) {
                Some(value) => format!("{requirement}, but it is {value:?}"),
                None => format!("{requirement}, but is missing"),
            })
            .collect()
    }
}

impl Requirement {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let bad = |key: &str, expected: &str| {
            FieldError::new(key, value.get(key).unwrap_or(&Value::Null), expected)
        };
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let key = text("key");
        if key.is_empty() {
            return Err(bad("key", "the key of a label"));
        }
        let list = value.get("values").and_then(Value::as_array);
        let values: Vec<String> = list.into_iter().flatten().filter_map(scalar).collect();
        let operator = match text("operator") {
            "In" => Operator::In(values),
            "NotIn" => Operator::NotIn(values),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return Err(bad("operator", "In, NotIn, Exists or DoesNotExist")),
        };
        if matches!(&operator, Operator::In(values) | Operator::NotIn(values) if values.is_empty()) {
            return Err(bad("values", "at least one value"));
        }
        Ok(Self { key: key.to_owned(), operator })
    }

    fn met(&self, labels: &dyn Labels) -> bool {
        let value = labels.label(&self.key);
        let among =
            |values: &[String]| value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
        match &self.operator {
            Operator::In(values) => among(values),
            Operator::NotIn(values) => !among(values),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// As `kubectl` writes selectors.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.operator {
            Operator::DoesNotExist => write!(f, "label {key} must be absent"),
            Operator::Exists => write!(f, "label {key} must be present"),
            Operator::In(values) => write!(f, "label {key} must be {}", values.join(" or ")),
            Operator::NotIn(values) => write!(f, "label {key} must not be {}", values.join(" or ")),
        }
    }
}

/// A field of this type; none if it is absent or null.
fn given<'v, T>(
    selector: &'v Value,
    key: &str,
    expected: &str,
    read: impl Fn(&'v Value) -> Option<T>,
) -> Result<Option<T>, FieldError> {
    let Some(value) = selector.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    read(value).map(Some).ok_or_else(|| FieldError::new(key, value, expected))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Null | Value::Object(_) => None,
    }
}

/// Labels that a selector can match.
pub trait Labels {
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for Map<String, Value> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }
}

impl Labels for Option<&Map<String, Value>> {
    fn label(&self, key: &str) -> Option<&str> {
        self.and_then(|labels| labels.label(key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &Value, labels: &Value) -> bool {
        Selector::parse(selector).unwrap().matches(labels.as_object().unwrap())
    }

    #[test]
    fn operators() {
        let with = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        for (operator, values, one, two, none) in [
            ("In", &["1", "x"][..], true, false, false),
            ("NotIn", &["1"][..], false, true, true),
            ("Exists", &[][..], true, true, false),
            ("DoesNotExist", &[][..], false, false, true),
        ] {
            let selector = with(operator, values);
            assert_eq!(matches(&selector, &json!({"a": "1"})), one, "{operator}");
            assert_eq!(matches(&selector, &json!({"a": "2"})), two, "{operator}");
            assert_eq!(matches(&selector, &json!({})), none, "{operator}");
        }
    }

    #[test]
    fn every_requirement_counts() {
        let selector =
            json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]});
        assert!(matches(&selector, &json!({"a": "1", "b": ""})));
        assert!(!matches(&selector, &json!({"a": "1"})));
        let unmet = Selector::parse(&selector).unwrap().unmet(json!({"a": "2"}).as_object().unwrap());
        assert_eq!(unmet, ["label a must be 1, but it is \"2\"", "label b must be present, but is missing"]);
    }

    #[test]
    fn invalid_selectors_are_reported_with_their_field() {
        let error =
            Selector::parse(&json!({"matchExpressions": [{"key": "a", "operator": "Is"}]})).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("matchExpressions[0]") && error.contains("NotIn"), "{error}");
        assert!(Selector::parse(&json!("a=b")).is_err());
        assert!(Selector::parse(&json!({"matchLabels": "a=b"})).is_err());
        assert!(Selector::parse(&json!({"matchExpressions": {"key": "a"}})).is_err());
        assert!(Selector::parse(&json!({"matchExpressions": [{"key": "a", "operator": "In"}]})).is_err());
    }
}
