//! ProxyConfig resources (`networking.istio.io`): proxy config of a mesh, a namespace, or some workloads of
//! one.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::message;
use crate::path::{FieldError, text};
use crate::schema::mesh::PROXY_CONFIG_RESOURCE;

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// `metadata.creationTimestamp` and `metadata.name`: the oldest one that matches counts, as in Istio.
    age: (String, String),
    /// The labels of the workloads; of the whole namespace without a selector.
    labels: Option<Map<String, Value>>,
    config: Map<String, Value>,
}

impl ProxyConfig {
    /// Whether an object is one.
    pub(crate) fn is_one(object: &Value) -> bool {
        text(object, "/kind") == "ProxyConfig"
            && text(object, "/apiVersion").starts_with("networking.istio.io/")
    }

    /// Reads an object with `metadata` and `spec`.
    ///
    /// # Errors
    ///
    /// The field, its value and what is accepted.
    pub fn of_object(object: &Value) -> Result<Self, FieldError> {
        let spec = object.get("spec").filter(|spec| !spec.is_null());
        let spec = spec.map(|spec| message::normal(spec, &PROXY_CONFIG_RESOURCE)).transpose();
        let mut config = spec.map_err(|error| error.below("spec"))?.unwrap_or_default();
        if let Some(below_zero) = config.get("concurrency").filter(|value| value.as_i64() < Some(0)) {
            return Err(FieldError::new("spec.concurrency", below_zero, "0 or more"));
        }
        let labels = config.shift_remove("selector").map(|mut selector| {
            let labels = selector.get_mut("matchLabels").map(Value::take);
            labels.and_then(|labels| labels.as_object().cloned()).unwrap_or_default()
        });
        if let Some(variables) = config.shift_remove("environmentVariables") {
            config.insert("proxyMetadata".to_owned(), variables);
        }
        let (time, name) = (text(object, "/metadata/creationTimestamp"), text(object, "/metadata/name"));
        Ok(Self { age: (time.to_owned(), name.to_owned()), labels, config })
    }
}

/// The resources of a cluster, or of files, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyConfigs(BTreeMap<String, Vec<ProxyConfig>>);

impl FromIterator<(String, ProxyConfig)> for ProxyConfigs {
    fn from_iter<I: IntoIterator<Item = (String, ProxyConfig)>>(all: I) -> Self {
        let mut found = Self::default();
        for (namespace, resource) in all {
            found.0.entry(namespace).or_default().push(resource);
        }
        found.0.values_mut().for_each(|resources| resources.sort_by(|one, other| one.age.cmp(&other.age)));
        found
    }
}

/// What applies to a pod: the first is below the second, and that below what the pod itself says; the last is
/// above it.
pub(crate) type Layers<'a> = [Option<&'a Map<String, Value>>; 3];

impl ProxyConfigs {
    /// The proxy configs of the root namespace, the pod's namespace and its workload.
    pub(crate) fn layers(
        &self,
        root: &str,
        namespace: &str,
        labels: Option<&Map<String, Value>>,
    ) -> Layers<'_> {
        let first = |namespace: &str, matches: &dyn Fn(&ProxyConfig) -> bool| {
            let found = self.0.get(namespace)?.iter().find(|resource| matches(resource));
            found.map(|resource| &resource.config)
        };
        let whole = |resource: &ProxyConfig| resource.labels.is_none();
        let of_pod = |resource: &ProxyConfig| {
            let wanted = resource.labels.as_ref().filter(|wanted| !wanted.is_empty());
            let has =
                |(key, value): (&String, &Value)| labels.and_then(|labels| labels.get(key)) == Some(value);
            wanted.is_some_and(|wanted| wanted.iter().all(has))
        };
        let of_namespace = if namespace == root { None } else { first(namespace, &whole) };
        [first(root, &whole), of_namespace, first(namespace, &of_pod)]
    }
}
