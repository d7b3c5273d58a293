//! `deploy/` matches the code. `UPDATE_DEPLOY=1 cargo test -p sidecar-injector --test injector manifests`
//! writes it.
//!
//! Overlays hold only what differs from the base, object by object, as JSON patches.

use std::path::{Path, PathBuf};

use istio_cni::install::platform::PLATFORMS;
use serde_json::{Value, json};
use sidecar_injector::config::BUILTIN_INIT_IMAGE;
use sidecar_injector::manifests::{namespace, node_agent, to_yaml};
use sidecar_injector::yaml;

use super::{Options, canary, cert_manager, objects, openshift, options};

const REMEDY: &str =
    "if that is meant: UPDATE_DEPLOY=1 cargo test -p sidecar-injector --test injector manifests";
const HEAD: &str = "# Made by `make gallery` from injector/src/manifests; do not edit by hand.\n";

fn base() -> Options {
    Options { validating_policy: false, ..options() }
}

fn file(name: &str, text: &str) -> (PathBuf, String) {
    (Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name), format!("{HEAD}{text}"))
}

fn kustomization(rest: &Value) -> String {
    let mut all = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"});
    all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    yaml::write(&all)
}

/// The key of an object in both installations, whatever its name.
fn same(one: &Value, other: &Value) -> bool {
    let named = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let name = name.replace("-canary", "");
        (object["kind"].clone(), name)
    };
    named(one) == named(other)
}

fn overlay(name: &str, options: &Options) -> Vec<(PathBuf, String)> {
    overlay_of(&format!("overlays/{name}"), &objects(&base()), &objects(options))
}

/// The overlay in that folder, whose base is two folders up.
fn overlay_of(folder: &str, base: &[Value], wanted: &[Value]) -> Vec<(PathBuf, String)> {
    let more: Vec<Value> =
        wanted.iter().filter(|object| !base.iter().any(|old| same(old, object))).cloned().collect();
    let mut patches = Vec::new();
    for old in base {
        let new = wanted.iter().find(|object| same(old, object)).unwrap();
        let patch = json_patch::diff(old, new);
        if !patch.0.is_empty() {
            let target = json!({"kind": old["kind"], "name": old["metadata"]["name"]});
            let mut entry =
                json!({"target": target, "patch": yaml::write(&serde_json::to_value(&patch).unwrap())});
            if old["metadata"]["name"] != new["metadata"]["name"] {
                entry["options"] = json!({"allowNameChange": true});
            }
            patches.push(entry);
        }
        let mut patched = old.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        assert_eq!(&patched, new);
    }
    let mut resources = vec!["../../base"];
    let mut files = Vec::new();
    if !more.is_empty() {
        resources.push("more.yaml");
        files.push(file(&format!("{folder}/more.yaml"), &to_yaml(&more)));
    }
    let text = kustomization(&json!({"resources": resources, "patches": patches}));
    files.push(file(&format!("{folder}/kustomization.yaml"), &text));
    files
}

/// The images of injector and init container in one place: kustomize finds the init container's in a variable
/// of the Deployment, which a flag reads.
fn images() -> Vec<(PathBuf, String)> {
    let objects = objects(&base());
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let injector = deployment.pointer("/spec/template/spec/containers/0/image").unwrap().as_str().unwrap();
    let container = "/spec/template/spec/containers/0";
    let patch = json!([
        {"op": "add", "path": format!("{container}/args/-"), "value": "--init-image=$(INIT_IMAGE)"},
        {"op": "add", "path": format!("{container}/env/-"), "value": {"name": "INIT_IMAGE", "value": BUILTIN_INIT_IMAGE}},
    ]);
    let target = json!({"kind": "Deployment", "name": deployment["metadata"]["name"]});
    let image = |given: &str| {
        let (name, tag) = given.rsplit_once(':').unwrap();
        json!({"name": name, "newName": name.replace("localhost", "registry.example.com/mesh"), "newTag": tag})
    };
    let kustomization = kustomization(&json!({
        "resources": ["../../base"],
        "patches": [{"target": target, "patch": yaml::write(&patch)}],
        "images": [image(injector), image(BUILTIN_INIT_IMAGE)],
        "configurations": ["variables.yaml"],
    }));
    let fields =
        json!({"images": [{"kind": "Deployment", "path": "spec/template/spec/containers/env/value"}]});
    vec![
        file("overlays/images/kustomization.yaml", &kustomization),
        file("overlays/images/variables.yaml", &yaml::write(&fields)),
    ]
}

#[test]
fn kustomize_sets_both_images_in_one_place() {
    let overlay = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/overlays/images");
    let built = std::process::Command::new("kubectl").arg("kustomize").arg(&overlay).output();
    let built = built.expect("kubectl, which .ci/setup installs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let documents = yaml::read_documents(&built.stdout).unwrap();
    let deployment = documents.iter().find(|document| document.value["kind"] == "Deployment").unwrap();
    let container = &deployment.value["spec"]["template"]["spec"]["containers"][0];
    let (name, tag) = BUILTIN_INIT_IMAGE.strip_prefix("localhost/").unwrap().rsplit_once(':').unwrap();
    assert_eq!(container["image"], format!("registry.example.com/mesh/sidecar-injector:{tag}"));
    let variables = container["env"].as_array().unwrap();
    let variable = variables.iter().find(|variable| variable["name"] == "INIT_IMAGE").unwrap();
    assert_eq!(variable["value"], format!("registry.example.com/mesh/{name}:{tag}"));
    // Kubernetes expands it.
    assert!(container["args"].as_array().unwrap().contains(&json!("--init-image=$(INIT_IMAGE)")));
    assert!(variables.iter().any(|variable| variable["name"] == "POD_NAMESPACE"));
}

fn files() -> Vec<(PathBuf, String)> {
    let mut files = vec![
        file("base/kustomization.yaml", &kustomization(&json!({"resources": ["sidecar-injector.yaml"]}))),
        file("base/sidecar-injector.yaml", &to_yaml(&objects(&base()))),
        // Not in any kustomization: deleting one must not delete the namespace and what else is in it.
        file("namespace.yaml", &to_yaml(&[namespace(&base().namespace)])),
    ];
    let plain = |options: Options| Options { validating_policy: false, ..options };
    files.extend(overlay("canary", &plain(canary())));
    files.extend(overlay("cert-manager", &plain(cert_manager())));
    files.extend(overlay("openshift", &plain(openshift())));
    files.extend(overlay("validating-policy", &options()));
    files.extend(images());
    files.extend(node_agents());
    files
}

/// The node agent's: a base, and an overlay for each platform with other directories.
fn node_agents() -> Vec<(PathBuf, String)> {
    let objects =
        |platform: &str| node_agent::objects(&super::node_agent::of(platform, "istio-system")).unwrap();
    let base = objects("default");
    let mut files = vec![
        file("cni/base/kustomization.yaml", &kustomization(&json!({"resources": ["istio-cni.yaml"]}))),
        file("cni/base/istio-cni.yaml", &to_yaml(&base)),
    ];
    for platform in PLATFORMS.iter().map(|platform| platform.name).filter(|name| *name != "default") {
        files.extend(overlay_of(&format!("cni/overlays/{platform}"), &base, &objects(platform)));
    }
    files
}

#[test]
fn deploy_matches_the_code() {
    for (path, text) in files() {
        if std::env::var_os("UPDATE_DEPLOY").is_some_and(|value| value == "1") {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{} differs from the code; {REMEDY}", path.display());
    }
}
