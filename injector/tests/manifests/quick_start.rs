//! The commands of the quick start give pods that need no control plane.

use std::path::Path;

use serde_json::Value;
use sidecar_injector::cli::{self, Environment, Output};
use sidecar_injector::yaml;

/// A command of the page, from its name to the pipe.
fn arguments(page: &str, command: &str) -> Vec<String> {
    let (_, rest) = page.split_once(&format!("$ sidecar-injector {command} ")).unwrap();
    let (line, _) = rest.split_once(" | kubectl").unwrap();
    let words = line.split_whitespace().filter(|word| *word != "\\").map(str::to_owned);
    ["sidecar-injector".to_owned(), command.to_owned()].into_iter().chain(words).collect()
}

fn run(arguments: Vec<String>) -> Output {
    cli::run(arguments.into_iter().map(Into::into), &Environment::default()).unwrap()
}

/// The volumes that a pod cannot start without, and that only a control plane provides.
fn required(pod: &Value) -> Vec<&Value> {
    let volumes = pod["spec"]["volumes"].as_array().unwrap().iter();
    let needs = |volume: &Value, source: &str| {
        volume.get(source).is_some_and(|source| source["optional"] != Value::Bool(true))
    };
    volumes.filter(|volume| needs(volume, "configMap") || needs(volume, "secret")).collect()
}

fn image<'a>(pod: &'a Value, name: &str) -> &'a str {
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().unwrap());
    let container = lists.into_iter().flatten().find(|container| container["name"] == name);
    container.and_then(|container| container["image"].as_str()).unwrap()
}

#[test]
fn the_quick_start_needs_no_control_plane() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/quick-start.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, rest) = page.split_once("cat >web.yaml <<'EOF'\n").unwrap();
    let (web, _) = rest.split_once("EOF\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    std::fs::write(&file, web).unwrap();
    let file = file.to_str().unwrap().to_owned();

    let mut inject = arguments(&page, "inject");
    let name = inject.iter_mut().find(|word| *word == "web.yaml").unwrap();
    *name = file.clone();
    let output = run(inject);
    assert!(output.notes.is_empty(), "{:?}", output.notes);
    let pod = yaml::read(&output.text).unwrap()["spec"]["template"].clone();

    let output = run(arguments(&page, "manifests"));
    assert!(output.notes.is_empty(), "{:?}", output.notes);
    let objects = yaml::read_documents(output.text.as_bytes()).unwrap();
    let map = objects.iter().map(|object| &object.value).find(|object| {
        object["kind"] == "ConfigMap" && object["metadata"]["name"] == "istio-sidecar-injector-trial"
    });
    let installed = folder.path().join("config.yaml");
    std::fs::write(&installed, map.unwrap().to_string()).unwrap();
    let installed = installed.to_str().unwrap();
    let inject =
        ["sidecar-injector", "inject", "-f", &file, "--inject-config", installed, "--revision", "trial"];
    let output = run(inject.map(str::to_owned).into());
    let by_webhook = yaml::read(&output.text).unwrap()["spec"]["template"].clone();

    for pod in [pod, by_webhook] {
        assert_eq!(required(&pod), [&Value::Null; 0], "{pod}");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(image(&pod, "istio-proxy"), format!("localhost/stand-in-proxy:{version}"));
        assert_eq!(image(&pod, "istio-init"), format!("localhost/istio-iptables:{version}"));
        assert!(pod["metadata"]["annotations"]["sidecar.istio.io/status"].is_string(), "{pod}");
    }
}
