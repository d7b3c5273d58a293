//! Where in a pod something is: with names of containers, variables and mounts, which stay the same when
//! lists change.

use std::fmt;

use serde_json::Value;

use crate::path::Lookup as _;

/// A place on the way down, on the stack.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    up: Option<&'a Self>,
    step: PlaceStep<'a>,
}

#[derive(Clone, Copy)]
enum PlaceStep<'a> {
    Root,
    Field(&'a str),
    Item { item: &'a Value, key: &'static str, index: usize },
}

impl<'a> Place<'a> {
    pub(super) const fn root() -> Self {
        Self { up: None, step: PlaceStep::Root }
    }

    pub(super) const fn field(&'a self, name: &'a str) -> Self {
        Self { up: Some(self), step: PlaceStep::Field(name) }
    }

    pub(super) const fn item(&'a self, item: &'a Value, key: &'static str, index: usize) -> Self {
        Self { up: Some(self), step: PlaceStep::Item { item, key, index } }
    }

    /// Whether a field on the way has this name.
    pub(super) fn is_in(&self, name: &str) -> bool {
        matches!(self.step, PlaceStep::Field(field) if field == name)
            || self.up.is_some_and(|up| up.is_in(name))
    }
}

/// The owned form of a [`Place`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Location(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Field(String),
    /// An item whose field `key` has this value.
    Named {
        key: &'static str,
        value: String,
    },
    Index(usize),
}

impl Location {
    pub(super) fn of(place: &Place<'_>) -> Self {
        let mut steps = Vec::new();
        let mut at = Some(place);
        while let Some(place) = at {
            match place.step {
                PlaceStep::Root => {}
                PlaceStep::Field(name) => steps.push(Step::Field(name.to_owned())),
                PlaceStep::Item { item, key, index } => {
                    let value = item
                        .lookup(key)
                        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
                    steps.push(match value.filter(|value| !value.is_empty()) {
                        Some(value) => Step::Named { key, value },
                        None => Step::Index(index),
                    });
                }
            }
            at = place.up;
        }
        steps.reverse();
        Self(steps)
    }

    /// What is there in another pod; a container is found in either list.
    pub(crate) fn find<'v>(&self, pod: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(pod, |value, step| step.of(value)).or_else(|| {
            let other = match self.0.get(1) {
                Some(Step::Field(list)) if list == "initContainers" => "containers",
                Some(Step::Field(list)) if list == "containers" => "initContainers",
                _ => return None,
            };
            let list = pod.lookup("spec")?.get(other)?;
            self.0.iter().skip(2).try_fold(list, |value, step| step.of(value))
        })
    }

    /// The place of a container in whichever list it is: injection may move it to the other one.
    pub(super) fn in_either_list(&self) -> Self {
        let step = |step: &Step| match step {
            Step::Field(name) if name == "initContainers" => Step::Field("containers".to_owned()),
            Step::Field(_) | Step::Named { .. } | Step::Index(_) => step.clone(),
        };
        Self(self.0.iter().map(step).collect())
    }

    /// The place of a field in the object at this place.
    pub(crate) fn field(&self, name: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Field(name.to_owned()));
        Self(steps)
    }

    /// The key of a label or annotation: `map` is one of these.
    pub(crate) fn metadata(&self, map: &str) -> Option<&str> {
        match self.0.as_slice() {
            [Step::Field(metadata), Step::Field(of), Step::Field(key)]
                if metadata == "metadata" && of == map =>
            {
                Some(key)
            }
            _ => None,
        }
    }

    /// The name of a volume of the pod.
    pub(crate) fn volume(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Step::Field(_), Step::Field(list), Step::Named { value, .. }] if list == "volumes" => {
                Some(value)
            }
            _ => None,
        }
    }

    /// The place that holds it.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, steps) = self.0.split_last()?;
        (!steps.is_empty()).then(|| Self(steps.to_vec()))
    }
}

impl Step {
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Field(name) => value.get(name.as_str()),
            Self::Index(index) => value.get(index),
            Self::Named { key, value: wanted } => value.as_array()?.iter().find(|item| {
                let Some(value) = item.lookup(key) else { return false };
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                shown == *wanted
            }),
        }
        .filter(|value| !value.is_null())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) => write!(f, "{}{name}", if at == 0 { "" } else { "." })?,
                Step::Named { value, .. } => write!(f, "[{value}]")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
