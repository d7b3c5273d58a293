//! What other webhooks change in an injected pod, before the API server calls the injector again.

use crate::builtin::{self, deployment, inject, injector, native, with, workload};
use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, Request, functions};

const NOTE: &str = "istio-iptables/injected-fields";

/// As the webhook makes it.
fn webhook() -> Injector {
    let mut injector = injector();
    injector.options.note_fields = true;
    injector
}

fn with_values(values: &str) -> Injector {
    let values = Some(Source { name: "values.yaml".to_owned(), text: values.to_owned() });
    let sources = Sources { values, ..Sources::default() };
    let options = Options { note_fields: true, ..Options::default() };
    Injector::new(sources.load(&functions(|_| None)).unwrap(), options)
}

fn injected_containers(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = pod["spec"].as_object_mut().unwrap();
    let lists = spec.iter_mut().filter(|(key, _)| key.to_ascii_lowercase().ends_with("containers"));
    let all = lists.flat_map(|(_, list)| list.as_array_mut().unwrap());
    all.filter(|container| container["name"].as_str().unwrap().starts_with("istio-"))
}

fn proxy(pod: &Value) -> &Value {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().unwrap());
    lists.into_iter().flatten().find(|container| container["name"] == "istio-proxy").unwrap()
}

type Change = (&'static str, fn(&mut Value));

/// What webhooks of other projects do to every container of a pod.
const CHANGES: &[Change] = &[
    ("a mirror of images", |container| {
        container["image"] = json!(format!("mirror.example.com/{}", container["image"].as_str().unwrap()));
    }),
    ("resources by recommendation", |container| {
        container["resources"] =
            json!({"requests": {"cpu": "777m", "memory": "777Mi"}, "limits": {"cpu": "7", "memory": "7Gi"}});
    }),
    ("no processor limits", |container| {
        container["resources"]["limits"].as_object_mut().unwrap().shift_remove("cpu");
    }),
    ("no resources", |container| {
        container.as_object_mut().unwrap().shift_remove("resources");
    }),
    ("a security profile", |container| {
        container["securityContext"]["seccompProfile"] =
            json!({"type": "Localhost", "localhostProfile": "audit.json"});
        container["securityContext"]["readOnlyRootFilesystem"] = json!(true);
    }),
    ("a pull policy and arguments", |container| {
        container["imagePullPolicy"] = json!("Always");
        container["args"].as_array_mut().unwrap().push(json!("--log_as_json"));
    }),
    ("variables and mounts", |container| {
        let mut env = container["env"].as_array().cloned().unwrap_or_default();
        env.insert(0, json!({"name": "FIRST", "value": "1"}));
        for variable in &mut env {
            if variable["name"] == "TRUST_DOMAIN" {
                variable["value"] = json!("example.com");
            }
        }
        container["env"] = json!(env);
        container["volumeMounts"] = json!([{"name": "agent", "mountPath": "/agent"}]);
    }),
];

#[test]
fn changes_of_other_webhooks_are_kept() {
    let injector = webhook();
    for native in ["true", "false"] {
        let pod = with(&deployment(), &json!({"sidecar.istio.io/nativeSidecar": native}));
        for (name, change) in CHANGES {
            let mut changed = inject(&injector, &pod).unwrap().pod;
            injected_containers(&mut changed).for_each(change);
            let again = inject(&injector, &changed).unwrap();
            assert_eq!(again.pod, changed, "{name}, native sidecar {native}");
            assert_eq!(again.warnings, [""; 0], "{name}");
        }
    }
}

/// The order of containers is set by the injector, and so are the facts of the pod that the proxy receives.
#[test]
fn containers_of_other_webhooks_are_taken_in() {
    let injector = webhook();
    let pod = with(&deployment(), &json!({"sidecar.istio.io/nativeSidecar": "false"}));
    let mut changed = inject(&injector, &pod).unwrap().pod;
    injected_containers(&mut changed).for_each(CHANGES[0].1);
    changed["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "agent", "image": "agent:1"}));
    changed["spec"]["initContainers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "agent-init", "image": "agent:1"}));
    let again = inject(&injector, &changed).unwrap().pod;
    let names = |list: &str| -> Vec<Value> {
        again["spec"][list].as_array().unwrap().iter().map(|item| item["name"].clone()).collect()
    };
    assert_eq!(names("containers"), ["web", "agent", "istio-proxy"]);
    assert_eq!(names("initContainers"), ["agent-init", "istio-init"]);
    let proxy = proxy(&again);
    assert!(proxy["image"].as_str().unwrap().starts_with("mirror.example.com/"));
    let env = proxy["env"].as_array().unwrap();
    let apps = env.iter().find(|variable| variable["name"] == "ISTIO_META_APP_CONTAINERS").unwrap();
    assert_eq!(apps["value"], "web,agent");
    assert_eq!(inject(&injector, &again).unwrap().pod, again);
}

/// What the templates give otherwise than before was not changed by others alone: a later config takes
/// effect.
#[test]
fn a_new_config_takes_effect() {
    let mut pod = inject(&webhook(), &deployment()).unwrap().pod;
    injected_containers(&mut pod).for_each(CHANGES[1].1);
    let newer = with_values("global: {tag: 9.9.9}");
    let again = inject(&newer, &pod).unwrap().pod;
    let proxy = proxy(&again);
    assert!(proxy["image"].as_str().unwrap().ends_with(":9.9.9"), "{proxy}");
    assert_eq!(proxy["resources"]["requests"]["cpu"], "777m");
    pod["metadata"]["annotations"]["sidecar.istio.io/proxyCPU"] = json!("50m");
    let again = inject(&webhook(), &pod).unwrap().pod;
    assert_eq!(self::proxy(&again)["resources"]["requests"]["cpu"], "50m");
}

/// The proxy's own list of containers changes: what is noted about it was of another place in the pod.
#[test]
fn a_proxy_that_moves_is_rendered_again() {
    let injector = webhook();
    let pod = deployment();
    let once = inject(&injector, &pod).unwrap().pod;
    let context = InjectionContext::default();
    let moved =
        injector.inject(Request { pod: &once, workload: &workload(), context: &context }).unwrap().pod;
    let fresh = injector.inject(Request { pod: &pod, workload: &workload(), context: &context }).unwrap().pod;
    assert_eq!(proxy(&moved), proxy(&fresh));
    assert_ne!(context, native());
}

#[test]
fn uninject_removes_the_record() {
    let injector = webhook();
    let pod = deployment();
    let once = inject(&injector, &pod).unwrap().pod;
    assert!(once["metadata"]["annotations"].get(NOTE).is_some());
    let out = injector
        .uninject(Request { pod: &once, workload: &workload(), context: &native() })
        .unwrap()
        .unwrap();
    assert!(out.pod["metadata"].get("annotations").is_none_or(|all| all.get(NOTE).is_none()), "{}", out.pod);
    // Manual injection writes none: nothing comes between it and the next one.
    let by_hand = inject(&builtin::injector(), &pod).unwrap().pod;
    assert!(by_hand["metadata"]["annotations"].get(NOTE).is_none());
    // One that is there is kept up to date.
    let again = inject(&builtin::injector(), &once).unwrap().pod;
    assert_eq!(again, once);
}

/// Any client can write the annotation: one that says nothing leaves the templates in charge.
#[test]
fn a_note_that_cannot_be_read_has_no_effect() {
    let injector = webhook();
    let once = inject(&injector, &deployment()).unwrap().pod;
    for text in ["", "{", "[]", r#"{"istio-proxy":7}"#] {
        let mut changed = once.clone();
        injected_containers(&mut changed).for_each(CHANGES[0].1);
        changed["metadata"]["annotations"][NOTE] = json!(text);
        assert_eq!(inject(&injector, &changed).unwrap().pod, once, "{text}");
    }
}
