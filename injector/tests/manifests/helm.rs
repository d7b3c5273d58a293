//! The Helm chart in `deploy/helm/` installs what `manifests` prints. `UPDATE_DEPLOY=1` writes its generated
//! files.

use std::path::Path;
use std::process::Command;

use gotemplate::{Functions, Limits, Template, Value as Data};
use serde_json::{Value, json};
use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_MESH, BUILTIN_VALUES};
use sidecar_injector::decide::{SYSTEM_NAMESPACES, webhook_selectors};
use sidecar_injector::manifests::{self, Certificates, Options, Platform};
use sidecar_injector::yaml;

use super::{all, objects};

const INIT_IMAGE: &str = "registry.example/iptables:1";

fn chart(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/helm").join(name)
}

/// The template of `manifests`, with names of the chart's own, and the built-in texts.
fn generated() -> String {
    let installation = include_str!("../../src/manifests/installation.yaml");
    let at = installation.find("apiVersion: v1\nkind: ServiceAccount").unwrap();
    let (head, body) = installation.split_at(at);
    let defines = &head[head.find("{{- define").unwrap()..];
    let text = format!("{defines}{{{{ define \"objects\" -}}}}\n{body}{{{{- end }}}}\n");
    let text = named(
        "sidecar-injector",
        text,
        &["labels", "metadata", "subjects", "message", "none-left", "objects"],
    );
    let except: Vec<&str> = SYSTEM_NAMESPACES.iter().copied().chain(["@NAMESPACE"]).collect();
    let hooks = |revision: &str, by_default| webhook_selectors::of_revision(revision, by_default, &except);
    let webhooks =
        json!({"default": hooks("", false), "all": hooks("", true), "revision": hooks("@REVISION", false)});
    let literal = |text: &str| json!(text).to_string();
    let values = yaml::read(BUILTIN_VALUES).unwrap().to_string();
    let data = include_str!("../../src/manifests/helm.tpl")
        .replace("@WEBHOOKS@", &literal(&webhooks.to_string()))
        .replace("@VALUES@", &literal(&values))
        .replace("@MESH@", &literal(BUILTIN_MESH))
        .replace("@CONFIG@", &literal(BUILTIN_CONFIG));
    format!(
        "{{{{/* Made by `make gallery` from injector/src/manifests; do not edit by hand. */ -}}}}\n{text}{data}"
    )
}

/// Templates with names of the chart's own, as all charts of a release share them.
pub(super) fn named(chart: &str, text: String, names: &[&str]) -> String {
    names.iter().flat_map(|name| ["define", "template"].map(|word| (word, name))).fold(
        text,
        |text, (word, name)| {
            text.replace(&format!("{word} \"{name}\""), &format!("{word} \"{chart}.{name}\""))
        },
    )
}

fn chart_yaml() -> String {
    let version = env!("CARGO_PKG_VERSION");
    yaml::write(&json!({
        "apiVersion": "v2", "name": "sidecar-injector", "type": "application", "version": version, "appVersion": version,
        "description": "Mutating webhook that injects istio-init and istio-proxy", "kubeVersion": ">=1.28.0-0",
    }))
}

#[test]
fn the_chart_matches_the_code() {
    for (name, text) in [("templates/_installation.tpl", generated()), ("Chart.yaml", chart_yaml())] {
        if std::env::var_os("UPDATE_DEPLOY").is_some_and(|value| value == "1") {
            std::fs::write(chart(name), &text).unwrap();
        }
        let found = std::fs::read_to_string(chart(name)).unwrap_or_default();
        assert!(
            found == text,
            "deploy/helm/{name} differs from the code: UPDATE_DEPLOY=1 cargo test -p sidecar-injector --test injector manifests"
        );
    }
}

/// The chart's values for an installation.
fn values_of(options: &Options) -> Value {
    json!({
        "revision": options.revision.as_str(),
        "replaceIstiod": options.revision.as_str().is_empty(),
        "image": options.image.as_str(),
        "initImage": INIT_IMAGE,
        "replicas": options.replicas,
        "failurePolicy": options.failure_policy.as_str(),
        "enableNamespacesByDefault": options.by_default,
        "certManager": options.certificates == Certificates::CertManager,
        "platform": if options.platform == Platform::Openshift { "openshift" } else { "kubernetes" },
        "validatingPolicy": options.validating_policy,
    })
}

fn rendered(values: &Value, namespace: &str) -> Result<Vec<Value>, String> {
    rendered_by_us(&chart(""), &generated(), values, namespace)
}

/// What `helm template` prints, by our own engine.
pub(super) fn rendered_by_us(
    chart: &Path,
    generated: &str,
    values: &Value,
    namespace: &str,
) -> Result<Vec<Value>, String> {
    let mut functions = Functions::builtin();
    functions.add_sprig();
    let read = |name: &str| std::fs::read_to_string(chart.join(name)).unwrap();
    let text = generated.to_owned() + &read("templates/installation.yaml");
    let template = Template::parse("chart", &text, &functions, gotemplate::Options::default()).unwrap();
    let mut all = yaml::read(&read("values.yaml")).unwrap();
    all.as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
    let data = json!({"Values": all, "Release": {"Namespace": namespace, "Name": "release"}});
    let text = template.render(Data::any(&data), Limits::default()).map_err(|error| error.to_string())?.text;
    Ok(documents(&text))
}

fn documents(text: &str) -> Vec<Value> {
    let documents = yaml::read_documents(text.as_bytes()).unwrap().into_iter().map(|document| document.value);
    documents.filter(|value| !value.is_null()).collect()
}

/// The texts of ConfigMaps, parsed: only what they say counts.
fn comparable(mut objects: Vec<Value>) -> Vec<Value> {
    for object in objects.iter_mut().filter(|object| object["kind"] == "ConfigMap") {
        for text in object["data"].as_object_mut().unwrap().values_mut() {
            *text = yaml::read(text.as_str().unwrap()).unwrap();
        }
    }
    objects
}

fn expected(options: &Options) -> Vec<Value> {
    let mut options = options.clone();
    let mut values = yaml::read(&options.texts.values).unwrap();
    values["global"]["proxy_init"]["image"] = json!(INIT_IMAGE);
    options.texts.values = values.to_string();
    let mut objects = comparable(objects(&options));
    // Helm leaves it in the cluster, as `manifests --uninstall` does.
    for object in objects.iter_mut().filter(|object| is_default_mesh_config(object)) {
        object["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    }
    objects
}

fn is_default_mesh_config(object: &Value) -> bool {
    object["kind"] == "ConfigMap" && object["metadata"]["name"] == "istio"
}

#[test]
fn the_chart_installs_what_manifests_prints() {
    for options in all() {
        let found = rendered(&values_of(&options), options.namespace.as_str()).unwrap();
        assert_eq!(comparable(found), expected(&options), "{:?}", values_of(&options));
    }
}

#[test]
fn the_chart_s_values_reach_the_config() {
    let values = json!({
        "revision": "one", "image": "a:1", "initImage": "b:1", "meshConfig": {"trustDomain": "example.org"},
        "values": {"global": {"proxy": {"image": "own"}}}, "config": "policy: disabled\n",
    });
    let found = comparable(rendered(&values, "mesh").unwrap());
    let map = |name: &str| {
        let found =
            found.iter().find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name);
        found.unwrap()["data"].clone()
    };
    assert_eq!(map("istio-one")["mesh"], json!({"trustDomain": "example.org"}));
    let texts = map("istio-sidecar-injector-one");
    assert_eq!(texts["config"], json!({"policy": "disabled"}));
    assert_eq!(texts["values"]["global"]["proxy"]["image"], "own");
    assert_eq!(texts["values"]["global"]["proxy_init"]["image"], "b:1");
    assert_eq!(texts["values"]["global"]["proxy"]["statusPort"], 15020);
}

#[test]
fn the_chart_asks_for_what_it_cannot_know() {
    let values = |more: Value| {
        let mut values = json!({"revision": "one", "image": "a:1", "initImage": "b:1"});
        values.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        values
    };
    assert!(rendered(&values(json!({})), "mesh").is_ok());
    for (more, problem) in [
        (json!({"revision": ""}), "revision is missing"),
        (json!({"image": ""}), "image is missing"),
        (json!({"initImage": ""}), "initImage is missing"),
    ] {
        let error = rendered(&values(more), "mesh").unwrap_err();
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
}

/// Helm itself renders the chart, where it is installed.
#[test]
fn helm_renders_the_chart_alike() {
    if Command::new("helm").arg("version").output().is_err() {
        println!("NOT CHECKED: helm is not installed");
        return;
    }
    let key = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    let sorted = |mut objects: Vec<Value>| {
        objects.sort_by_key(key);
        objects
    };
    for options in all() {
        // Helm sorts objects by kind.
        let found = rendered_by_helm(&chart(""), &values_of(&options), options.namespace.as_str());
        assert_eq!(sorted(comparable(found)), sorted(expected(&options)));
    }
    for options in super::node_agent::all() {
        let values = super::node_agent_helm::values_of(&options);
        let found = rendered_by_helm(&super::node_agent_helm::chart(""), &values, options.namespace.as_str());
        assert_eq!(sorted(found), sorted(manifests::node_agent::objects(&options).unwrap()));
    }
}

fn rendered_by_helm(chart: &Path, values: &Value, namespace: &str) -> Vec<Value> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), values.to_string()).unwrap();
    let mut helm = Command::new("helm");
    helm.args(["template", "release"]).arg(chart).arg("--values").arg(file.path());
    let output = helm.args(["--namespace", namespace]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    documents(&String::from_utf8(output.stdout).unwrap())
}
