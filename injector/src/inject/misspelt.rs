//! Keys and fields of a pod that mean nothing, often known ones, misspelt.

use serde_json::Value;

use crate::annotations::keys;
use crate::config::Mesh;
use crate::decide;
use crate::pod::annotations;
use crate::pod::list::annotation;
use crate::yaml::{self, YamlError};

/// The annotation `proxy.istio.io/config`, which every pod may bring.
pub(super) fn proxy_config(text: &str) -> Result<Value, YamlError> {
    const MOST_NODES: usize = 10_000;
    yaml::read_at_most(MOST_NODES, text)
}

/// The fields of annotation `proxy.istio.io/config` that no ProxyConfig has, each in a sentence.
pub(super) fn unknown_fields(config: &Value) -> Vec<String> {
    let fields = Mesh::unknown_proxy_fields(config).into_iter();
    fields.map(|field| format!("annotation {}: {field}", keys::PROXY_CONFIG)).collect()
}

/// The misspelt keys and fields of a pod, each in a sentence.
pub(crate) fn misspelt(pod: &Value) -> Vec<String> {
    let config = annotation(pod, keys::PROXY_CONFIG).and_then(|text| proxy_config(text).ok());
    let fields = config.iter().flat_map(unknown_fields);
    decide::misspelt(pod).into_iter().chain(annotations::unknown_keys(pod)).chain(fields).collect()
}
