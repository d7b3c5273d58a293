//! The ConfigMaps that the injector watches.

use serde_json::{Value, json};

use super::names::Names;
use super::options::Options;

pub(super) fn objects(options: &Options, names: &Names) -> Vec<Value> {
    let map = |name: &str, data: Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": names.metadata(options, name), "data": data,
        })
    };
    let texts = &options.texts;
    vec![
        map(&names.injector(), json!({"config": texts.config, "values": texts.values})),
        map(&names.mesh(), json!({"mesh": texts.mesh})),
    ]
}
