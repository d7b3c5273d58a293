//! A config file, or a ConfigMap, that was read.

use std::collections::BTreeMap;

use serde_json::json;

/// A file, by name and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the file, for messages.
    pub name: String,
    /// The content of the file.
    pub text: String,
}

impl Source {
    /// A whole ConfigMap of a cluster. In a file an empty key may be truncated; here it was written as it is,
    /// and counts as `{}`, as in Istio.
    pub(crate) fn of_config_map(namespace: &str, name: &str, mut data: BTreeMap<String, String>) -> Self {
        for key in ["mesh", "values"] {
            if let Some(text) = data.get_mut(key).filter(|text| text.trim().is_empty()) {
                "{}".clone_into(text);
            }
        }
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data,
        });
        Self { name: format!("ConfigMap {namespace}/{name}"), text: map.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_key_counts_as_an_empty_map() {
        let keys = [("mesh", "\n"), ("values", ""), ("config", "")];
        let data = keys.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        let source = Source::of_config_map("ns", "x", data);
        let map: serde_json::Value = serde_json::from_str(&source.text).expect("JSON");
        assert_eq!(map["data"], json!({"mesh": "{}", "values": "{}", "config": ""}));
    }
}
