//! What the user wrote comes back in its own form.

use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, functions};

use super::losses::sorted;
use super::{INJECTORS, injected, uninjected};
use crate::builtin::injector;

/// What an injection notes for this purpose.
fn own_forms() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "i", "ports": [{"name": "http", "containerPort": 80}, {"name": "admin", "containerPort": 81}],
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
            "readinessProbe": {"tcpSocket": {"port": 81}},
            "lifecycle": {"preStop": {"httpGet": {"port": "admin"}}},
            "resources": {"limits": {"cpu": "1000m", "memory": "0.5Gi", "example.com/gpu": 1}, "requests": {"cpu": "1"}},
        })
    };
    json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {
            "kubectl.kubernetes.io/default-container": "web", "kubectl.kubernetes.io/default-logs-container": "other",
        }},
        "spec": {
            "containers": [container("web"), container("other")],
            "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1024Mi"}}],
        },
    })
}

#[test]
fn what_the_user_wrote_comes_back_as_written() {
    let [injector, _] = &*INJECTORS;
    let pod = own_forms();
    for native_sidecars in [true, false] {
        let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
        let once = injected(injector, &pod, &context);
        let note = once["metadata"]["annotations"]["istio-iptables/uninject"].as_str().unwrap();
        assert!(!note.contains("default-logs-container") && !note.contains("requests"), "{note}");
        let twice = injected(injector, &once, &context);
        assert_eq!(twice.to_string(), once.to_string());
        for again in [once, sorted(&twice)] {
            let out = uninjected(injector, &again, &context);
            assert_eq!(out.pod, pod, "{:?}", out.left);
        }
    }
}

/// A template may choose another container than the first, and the same as the user did.
#[test]
fn own_default_container_comes_back_whatever_a_template_chooses() {
    let text = r#"
policy: enabled
templates:
  sidecar: |
    metadata:
      annotations:
        {{- if not (isset .ObjectMeta.Annotations "kubectl.kubernetes.io/default-container") }}
        kubectl.kubernetes.io/default-container: {{ (last .Spec.Containers).Name }}
        {{- end }}
    spec: {containers: [{name: istio-proxy, image: "proxy:1"}]}
"#;
    let source = |name: &str, text: &str| Some(Source { name: name.to_owned(), text: text.to_owned() });
    let values = source("values", r#"{"sidecarInjectorWebhook": {"uninjectAnnotation": true}}"#);
    let sources = Sources { config: source("config", text), values, ..Sources::default() };
    let injector = Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default());
    let context = InjectionContext::default();
    for own in [Some("web"), Some("other"), None] {
        let mut pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "web", "image": "i"}, {"name": "other", "image": "i"}]}});
        if let Some(own) = own {
            pod["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": own});
        }
        let once = injected(&injector, &pod, &context);
        let noted = once["metadata"]["annotations"].get("istio-iptables/uninject").is_some();
        assert_eq!(noted, own == Some("other"), "{once}");
        assert_eq!(uninjected(&injector, &once, &context).pod, pod);
    }
}

#[test]
fn changes_since_the_injection_stay() {
    let [injector, _] = &*INJECTORS;
    let context = InjectionContext::default();
    let mut pod = injected(injector, &own_forms(), &context);
    let mut apps = pod["spec"]["containers"].as_array_mut().unwrap().iter_mut();
    let app = apps.find(|one| one["name"] == "web").unwrap();
    app["resources"]["limits"]["cpu"] = json!("2");
    app["ports"][0]["containerPort"] = json!(8080);
    let out = uninjected(injector, &pod, &context).pod;
    let web = &out["spec"]["containers"][0];
    assert_eq!(web["resources"]["limits"]["cpu"], "2");
    assert_eq!(web["livenessProbe"]["httpGet"]["port"], 80);
    assert_eq!(web["lifecycle"]["preStop"]["httpGet"]["port"], "admin");
}

#[test]
fn nothing_is_noted_where_a_guess_is_right_or_the_values_say_so() {
    let plain = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{
        "name": "web", "image": "i", "ports": [{"name": "http", "containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}}, "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
    }]}});
    let mut off = injector();
    off.settings.values["sidecarInjectorWebhook"]["uninjectAnnotation"] = json!(false);
    let context = InjectionContext::default();
    for (injector, pod) in [(&INJECTORS[0], &plain), (&off, &own_forms())] {
        let injected = injected(injector, pod, &context);
        assert_eq!(injected["metadata"]["annotations"].get("istio-iptables/uninject"), None);
    }
}

/// An empty annotation is set: kubectl then takes the first container of the pod.
#[test]
fn empty_default_container_stays() {
    let [injector, _] = &*INJECTORS;
    let context = InjectionContext::default();
    for key in ["kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"] {
        let pod = json!({"metadata": {"labels": {"app": "web"}, "annotations": {key: ""}}, "spec": {"containers": [{"name": "web", "image": "i"}]}});
        let once = injected(injector, &pod, &context);
        assert_eq!(once["metadata"]["annotations"][key], "");
        assert_eq!(uninjected(injector, &once, &context).pod, pod);
    }
}
