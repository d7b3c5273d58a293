//! The Helm chart in `deploy/cni/helm/` installs what `manifests --cni` prints. `UPDATE_DEPLOY=1` writes its
//! generated files.

use std::path::{Path, PathBuf};

use istio_cni::install::options::{NETNS_DIR, RESULTS_DIR};
use istio_cni::install::platform::PLATFORMS;
use istio_cni::netconf::RUN_DIR;
use serde_json::{Map, Value, json};
use sidecar_injector::manifests::node_agent::{NAME, NodeAgent, PORT, objects, platform_name, variables};
use sidecar_injector::yaml;

use super::helm::{named, rendered_by_us};
use super::node_agent::all;

pub(super) fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/cni/helm").join(name)
}

fn generated() -> String {
    let installation = include_str!("../../src/manifests/node_agent/installation.yaml");
    let body = &installation[installation.find("{{- define").unwrap()..];
    let at = body.find("{{- $volumes").unwrap();
    let (defines, body) = body.split_at(at);
    let text = format!("{defines}{{{{ define \"objects\" -}}}}\n{body}{{{{- end }}}}\n");
    let text = named("istio-cni", text, &["labels", "metadata", "mount", "volume", "objects"]);
    let literal = |text: &str| json!(text).to_string();
    let platforms: Map<String, Value> = PLATFORMS
        .iter()
        .map(|one| {
            let value = json!({"name": one.name, "binDir": one.bin_dir, "netDir": one.net_dir});
            (platform_name(one).to_owned(), value)
        })
        .collect();
    let data = include_str!("../../src/manifests/node_agent/helm.tpl")
        .replace("@PLATFORMS@", &literal(&Value::Object(platforms).to_string()))
        .replace("@VARIABLES@", &literal(&variables().to_string()))
        .replace("@NAME@", &literal(NAME))
        .replace("@RUN_DIR@", &literal(RUN_DIR))
        .replace("@NETNS_DIR@", &literal(NETNS_DIR))
        .replace("@RESULTS_DIR@", &literal(RESULTS_DIR))
        .replace("@PORT@", &PORT.to_string());
    format!(
        "{{{{/* Made by `make gallery` from injector/src/manifests; do not edit by hand. */ -}}}}\n{text}{data}"
    )
}

fn chart_yaml() -> String {
    let version = env!("CARGO_PKG_VERSION");
    yaml::write(&json!({
        "apiVersion": "v2", "name": "istio-cni-node-agent", "type": "application", "version": version, "appVersion": version,
        "description": "Node agent that installs the CNI plugin istio-cni", "kubeVersion": ">=1.28.0-0",
    }))
}

#[test]
fn chart_matches_the_code() {
    for (name, text) in [("templates/_installation.tpl", generated()), ("Chart.yaml", chart_yaml())] {
        if std::env::var_os("UPDATE_DEPLOY").is_some_and(|value| value == "1") {
            std::fs::write(chart(name), &text).unwrap();
        }
        let found = std::fs::read_to_string(chart(name)).unwrap_or_default();
        let remedy = "UPDATE_DEPLOY=1 cargo test -p sidecar-injector --test injector manifests";
        assert!(found == text, "deploy/cni/helm/{name} differs from the code: {remedy}");
    }
}

/// The chart's values for an installation.
pub(super) fn values_of(options: &NodeAgent) -> Value {
    json!({"image": options.image.as_str(), "platform": platform_name(&options.platform)})
}

fn rendered(values: &Value, namespace: &str) -> Result<Vec<Value>, String> {
    rendered_by_us(&chart(""), &generated(), values, namespace)
}

#[test]
fn chart_installs_what_manifests_prints() {
    for options in all() {
        let found = rendered(&values_of(&options), options.namespace.as_str()).unwrap();
        assert_eq!(found, objects(&options).unwrap(), "{:?}", values_of(&options));
    }
}

#[test]
fn values_reach_the_config_map() {
    let values = json!({"image": "a:1", "backend": "nftables", "capture": {"dns": true}, "cniConfFileName": "20-b.conflist", "deadlineMs": 9000,
        "excludeNamespaces": ["a"], "guard": "off", "logLevel": "debug", "onUnknown": "pass", "replaceIstio": true,
        "dropIn": "auto", "removeTaint": true, "podEvents": false, "resetEscaped": true, "repair": "label", "brokenPodLabelKey": "a/b", "brokenPodLabelValue": "c"});
    let found = rendered(&values, "mesh").unwrap();
    let map = super::only(&found, "ConfigMap");
    let expected = json!({"BACKEND": "nftables", "CAPTURE": "{\"dns\":true}", "CNI_CONF_NAME": "20-b.conflist", "DEADLINE_MS": "9000",
        "EXCLUDE_NAMESPACES": "a,mesh", "GUARD": "off", "LOG_LEVEL": "debug", "ON_UNKNOWN": "pass", "REPLACE_ISTIO": "true",
        "DROP_IN": "auto", "REMOVE_TAINT": "true", "POD_EVENTS": "false", "RESET_ESCAPED": "true", "REPAIR": "label", "REPAIR_BROKEN_POD_LABEL_KEY": "a/b",
        "REPAIR_BROKEN_POD_LABEL_VALUE": "c"});
    assert_eq!(map["data"], expected);
}

#[test]
fn chart_refuses_what_it_cannot_install() {
    let mut accepted: Vec<&str> = PLATFORMS.iter().map(platform_name).collect();
    accepted.sort_unstable();
    let refusal = format!("\"aks\" is not accepted, expected one of {}", accepted.join(", "));
    for (values, problem) in
        [(json!({}), "image is missing"), (json!({"image": "a:1", "platform": "aks"}), refusal.as_str())]
    {
        let error = rendered(&values, "mesh").unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(chart("values.schema.json")).unwrap()).unwrap();
    let defaults = yaml::read(&std::fs::read_to_string(chart("values.yaml")).unwrap()).unwrap();
    for key in defaults.as_object().unwrap().keys() {
        assert!(schema["properties"].get(key).is_some(), "values.schema.json: {key}");
        // A value that is set to null loses its default before the schema is applied.
        let required = schema["required"].as_array().unwrap();
        assert!(required.contains(&json!(key)), "values.schema.json: {key} is not required");
    }
    let mut listed: Vec<&str> = schema["properties"]["platform"]["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, accepted);
}
