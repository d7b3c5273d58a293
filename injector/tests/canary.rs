//! README's canary: a template with only the init container's image, named in an annotation of one workload.

use serde_json::Value;
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, Request, functions};
use sidecar_injector::pod::workload::Workload;
use sidecar_injector::yaml;

/// The YAML texts of README, with the first line of each as its beginning.
fn blocks() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let blocks = readme.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|text| yaml::read(text).unwrap_or_else(|error| panic!("{error}: {text}"))).collect()
}

/// The values of the chart and the metadata of the workload.
fn canary() -> (Value, Value) {
    let blocks = blocks();
    let with = |pointer: &str| {
        let found = blocks.iter().filter_map(|block| block.pointer(pointer)).collect::<Vec<_>>();
        let [found] = found.as_slice() else { panic!("{pointer}: {found:?}") };
        (*found).clone()
    };
    (with("/sidecarInjectorWebhook/templates"), with("/metadata/annotations"))
}

/// The pointers at which two values differ.
fn differences(at: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                let values = [one, other].map(|map| map.get(key).cloned().unwrap_or_default());
                differences(&format!("{at}/{key}"), &values[0], &values[1], found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (number, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{at}/{number}"), one, other, found);
            }
        }
        _ if one == other => {}
        _ => found.push(at.to_owned()),
    }
}

/// With the templates of README beside those of a config, only the image of the init container differs in a
/// pod with README's annotation, whether the proxy is a native sidecar or not.
pub(crate) fn only_the_init_image_differs(config: &Value, values: Option<&Value>, mesh: Option<&Value>) {
    let (templates, annotations) = canary();
    let mut config = config.clone();
    // As the chart does.
    for (name, template) in templates.as_object().unwrap() {
        assert!(config["templates"].get(name).is_none(), "{name}");
        config["templates"][name] = template.clone();
    }
    let source = |name: &str, value: &Value| Some(Source { name: name.to_owned(), text: value.to_string() });
    let sources = Sources {
        config: source("config", &config),
        values: values.and_then(|values| source("values", values)),
        mesh: mesh.and_then(|mesh| source("mesh", mesh)),
    };
    let settings = sources.load(&functions(|_| None)).unwrap_or_else(|problems| panic!("{problems:?}"));
    let injector = Injector::new(settings, Options::default());
    let pod = yaml::read(
        "{metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web, ports: [{containerPort: 80}]}],\
         initContainers: [{name: first, image: first}]}}",
    );
    let plain = pod.unwrap();
    let mut chosen = plain.clone();
    chosen["metadata"]["annotations"] = annotations;
    let workload = Workload::of_object(&plain, "shop");
    for native_sidecars in [true, false] {
        let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
        let [plain, chosen] = [&plain, &chosen].map(|pod| {
            let injected = injector.inject(Request { pod, workload: &workload, context: &context }).unwrap();
            assert!(injected.invalid.is_empty() && injected.warnings.is_empty(), "{injected:?}");
            injected.pod
        });
        let init = |pod: &Value| {
            let all = pod["spec"]["initContainers"].as_array().unwrap();
            all.iter().position(|container| container["name"] == "istio-init").unwrap()
        };
        let image = format!("/spec/initContainers/{}/image", init(&plain));
        let mut found = Vec::new();
        differences("", &plain, &chosen, &mut found);
        // The annotation itself, and the notes of this program.
        let notes = ["inject.istio.io/templates", "istio-iptables/uninject", "sidecar.istio.io/status"];
        found.retain(|at| !notes.iter().any(|note| *at == format!("/metadata/annotations/{note}")));
        assert_eq!(found, [image.as_str()]);
        let wanted = templates["capture"].as_str().unwrap();
        let given = chosen.pointer(&image).and_then(Value::as_str).unwrap();
        assert!(wanted.contains(&format!("image: {given}\n")), "{given}: {wanted}");
    }
}

#[cfg(test)]
#[test]
fn readme_s_canary_changes_only_the_image_of_the_init_container() {
    use sidecar_injector::cli::{self, Environment};
    let built_in = |what: &str| {
        let arguments = ["sidecar-injector", "config", what].map(Into::into);
        yaml::read(&cli::run(arguments, &Environment::default()).unwrap().text).unwrap()
    };
    only_the_init_image_differs(&built_in("config"), Some(&built_in("values")), None);
}
