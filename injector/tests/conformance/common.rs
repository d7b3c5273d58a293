//! Cases from a folder, and pods in a form in which they can be compared.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, functions};
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::{quantity, yaml};

pub(crate) struct Case {
    pub name: String,
    pub injector: Injector,
    pub documents: Vec<Value>,
    pub context: InjectionContext,
}

/// The folder with Istio's own config and cases: below `CONFORMANCE_DATA`, or beside this repository. Without
/// it the tests are ignored.
pub(crate) fn data() -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    let folder = std::env::var_os("CONFORMANCE_DATA").map_or_else(beside, PathBuf::from).join("istio");
    folder.is_dir().then_some(folder)
}

fn text(name: &str) -> String {
    let path = data().expect("the data").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file of the data.
pub(crate) fn read(name: &str) -> Value {
    yaml::read(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// All cases that expect a result.
pub(crate) fn cases() -> Vec<Case> {
    let base = [
        ("config", read("inject-config.yaml")),
        ("values", read("inject-values.json")),
        ("mesh", read("mesh-config.yaml")),
    ];
    let mut all = Vec::new();
    for list in ["inject/cases.yaml", "inject/cases-extra.yaml"] {
        for case in read(list)["cases"].as_array().expect("a list of cases") {
            let word = |key: &str| case[key].as_str().unwrap_or_default();
            if case.get("expected").is_none()
                || word("input") == "hello-ignore.yaml"
                || word("input").contains("host-network")
            {
                continue;
            }
            let source = |key: &str| {
                let (_, base) = base.iter().find(|(name, _)| *name == key).expect("one of the three");
                let over = case.get(key).cloned().unwrap_or_default();
                let merged = if over.is_null() { base.clone() } else { merged(base, &over) };
                Some(Source { name: key.to_owned(), text: merged.to_string() })
            };
            let sources =
                Sources { config: source("config"), values: source("values"), mesh: source("mesh") };
            let settings =
                sources.load(&functions(|_| None)).unwrap_or_else(|problems| panic!("{problems:?}"));
            let options = Options { revision: word("revision").to_owned(), ..Options::default() };
            let ids = match case.get("namespace") {
                Some(namespace) => Ids::of_namespace(namespace).unwrap(),
                None => Ids::default(),
            };
            let native_sidecars = case["nativeSidecars"].as_bool().unwrap_or(true);
            let input = text(&format!("inject/input/{}", word("input")));
            let documents = yaml::read_documents(input.as_bytes()).unwrap();
            let documents = documents.into_iter().map(|document| document.value).collect();
            all.push(Case {
                name: word("name").to_owned(),
                injector: Injector::new(settings, options),
                documents,
                context: InjectionContext { ids, native_sidecars, ..InjectionContext::default() },
            });
        }
    }
    all
}

/// Maps key by key, everything else replaced.
fn merged(base: &Value, over: &Value) -> Value {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            let mut result = base.clone();
            for (key, value) in over {
                let new = base.get(key).map_or_else(|| value.clone(), |base| merged(base, value));
                result.insert(key.clone(), new);
            }
            Value::Object(result)
        }
        _ => over.clone(),
    }
}

/// A pod without what cannot be reported apart or restored: empty values, the writing of quantities, names of
/// ports in probes, the place of the user's proxy container.
pub(crate) fn comparable(pod: &Value) -> Value {
    let mut pod = pod.clone();
    quantity::canonical_quantities(&mut pod).unwrap();
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(number_ports);
    }
    comparable_as_written(&pod)
}

/// A pod as by [`comparable`], with quantities and names of ports as written.
pub(crate) fn comparable_as_written(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in ["containers", "initContainers"] {
        let Some(containers) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        containers.sort_by_key(|container| container["name"].as_str().unwrap_or_default().to_owned());
    }
    without_empty(pod).unwrap_or_else(|| json!({}))
}

fn number_ports(container: &mut Value) {
    let ports: Map<String, Value> = container["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|port| Some((port.get("name")?.as_str()?.to_owned(), port.get("containerPort")?.clone())))
        .collect();
    let kinds = ["httpGet", "tcpSocket"];
    let places =
        ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/preStop", "/lifecycle/postStart"];
    for (place, kind) in places.iter().flat_map(|place| kinds.map(|kind| (place, kind))) {
        if let Some(port) = container.pointer_mut(&format!("{place}/{kind}/port"))
            && let Some(number) = port.as_str().and_then(|name| ports.get(name))
        {
            *port = number.clone();
        }
    }
}

fn without_empty(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => {
            let kept: Map<String, Value> =
                map.into_iter().filter_map(|(key, value)| Some((key, without_empty(value)?))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_empty).collect())),
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Number(number) if number.as_f64() == Some(0.0) => None,
        other => Some(other),
    }
}

/// What a hostile value must not change: which containers and volumes there are and what they may do.
pub(crate) fn powers(pod: &Value) -> Value {
    let list = |key: &str, fields: &[&str]| -> Vec<Value> {
        let items = pod["spec"][key].as_array().cloned().unwrap_or_default();
        items
            .iter()
            .map(|item| fields.iter().map(|field| item.get(*field).cloned().unwrap_or_default()).collect())
            .collect()
    };
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().into_iter().flat_map(Map::keys).cloned().collect();
        keys.sort();
        keys
    };
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let volumes: Vec<Value> = volumes.map(|volume| json!([volume["name"], keys(volume)])).collect();
    let fields = ["name", "securityContext", "command", "lifecycle", "envFrom", "volumeMounts", "ports"];
    json!({
        "containers": list("containers", &fields),
        "initContainers": list("initContainers", &fields),
        "volumes": volumes,
        "spec": keys(&pod["spec"]),
        "pod": keys(pod),
    })
}

/// Values that people do not write.
pub(crate) const NASTY: [&str; 16] = [
    "x\"\n    securityContext:\n      privileged: true\n    a: \"",
    "x\nspec:\n  hostNetwork: true",
    "x\"}",
    "x\", privileged: true, y: \"",
    "' , evil: '",
    "{a: b}",
    "[a, b]",
    "- a",
    "a: b",
    "a #b",
    "&a b",
    "*a",
    "!!binary aGk=",
    "\\",
    "\u{2028}\u{85}\t",
    "{{ .Values }}",
];
