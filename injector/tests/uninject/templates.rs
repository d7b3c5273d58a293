//! Templates of an operator's own, which change fields that the pod has: what they changed comes back.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, Request, functions};

use super::losses::{lost, sorted};
use super::silence::{count, is_named, pods};
use super::{INJECTORS, injected, uninjected};
use crate::builtin::workload;

/// A config with this one template, whose output is always the same.
fn injector_of(template: &Value) -> Injector {
    let text =
        json!({"policy": "enabled", "defaultTemplates": ["own"], "templates": {"own": template.to_string()}});
    let source = |name: &str, text: String| Some(Source { name: name.to_owned(), text });
    let values = json!({"sidecarInjectorWebhook": {"uninjectAnnotation": true, "rewriteAppHTTPProbe": true}});
    let sources = Sources {
        config: source("config", text.to_string()),
        values: source("values", values.to_string()),
        ..Sources::default()
    };
    Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default())
}

/// Fields with values that [`pods`] have, too, and others.
fn fields(all: Vec<(&'static str, Value)>, most: usize) -> impl Strategy<Value = Map<String, Value>> {
    prop::sample::subsequence(all, 0..=most)
        .prop_map(|all| all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn spec_fields() -> Vec<(&'static str, Value)> {
    vec![
        ("dnsPolicy", json!("ClusterFirst")),
        ("dnsConfig", json!({"searches": ["mesh"], "options": [{"name": "ndots", "value": "2"}]})),
        ("tolerations", json!([{"key": "mesh", "operator": "Exists"}])),
        (
            "hostAliases",
            json!([{"ip": "10.0.0.9", "hostnames": ["a"]}, {"ip": "10.0.0.1", "hostnames": ["mesh"]}]),
        ),
        ("serviceAccountName", json!("mesh")),
        ("priorityClassName", Value::Null),
        (
            "securityContext",
            json!({"fsGroup": 1337, "runAsUser": null, "sysctls": [{"name": "net.a", "value": "1"}]}),
        ),
        ("imagePullSecrets", json!([{"name": "mesh"}, {"name": "extra"}])),
        ("terminationGracePeriodSeconds", json!(60)),
        ("readinessGates", json!([{"conditionType": "mesh"}])),
        ("shareProcessNamespace", json!(true)),
        (
            "volumes",
            json!([{"name": "own", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, {"name": "x", "emptyDir": {}}]),
        ),
        ("nodeSelector", json!({"mesh": "yes"})),
    ]
}

fn container_fields() -> Vec<(&'static str, Value)> {
    vec![
        ("image", json!("other:2")),
        ("env", json!([{"name": "A", "value": "7"}, {"name": "MESH", "value": "1"}, {"name": "Z"}])),
        ("ports", json!([{"containerPort": 80, "name": "web"}, {"containerPort": 9}])),
        (
            "volumeMounts",
            json!([{"name": "x", "mountPath": "/x"}, {"name": "own", "mountPath": "/own", "readOnly": true}]),
        ),
        ("resources", json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}})),
        ("livenessProbe", json!({"httpGet": {"port": 81, "path": "/mesh"}, "periodSeconds": 9})),
        ("readinessProbe", json!({"exec": {"command": ["mesh"]}, "timeoutSeconds": 8})),
        ("securityContext", json!({"runAsUser": 5, "capabilities": {"drop": ["ALL"]}})),
        ("tty", json!(true)),
        ("args", json!(["mesh"])),
        ("lifecycle", json!({"preStop": {"sleep": {"seconds": 5}}})),
        ("imagePullPolicy", json!("Always")),
    ]
}

fn templates() -> impl Strategy<Value = Value> {
    let labels = fields(vec![("team", json!("platform")), ("version", Value::Null), ("new", json!("1"))], 2);
    let annotations =
        fields(vec![("owner", json!("platform")), ("cost-center", Value::Null), ("more", json!("1"))], 2);
    let (web, init) = (fields(container_fields(), 4), fields(container_fields(), 2));
    (labels, annotations, fields(spec_fields(), 4), web, init).prop_map(
        |(labels, annotations, spec, mut web, mut init)| {
            let mut all = json!({"containers": [{"name": "istio-proxy", "image": "proxy:1"}]});
            if !web.is_empty() {
                web.insert("name".to_owned(), json!("web"));
                all["containers"].as_array_mut().unwrap().push(Value::Object(web));
            }
            if !init.is_empty() {
                init.insert("name".to_owned(), json!("migrate"));
                all["initContainers"] = json!([init]);
            }
            all.as_object_mut().unwrap().extend(spec);
            json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": all})
        },
    )
}

/// What `uninject` does not restore, with the injection's own config and with the built-in one: of what the
/// template writes, and of the rest what it does not name.
fn unrestored(template: &Value, pod: &Value) -> Option<Vec<String>> {
    let (injector, workload) = (injector_of(template), workload());
    let context = InjectionContext::default();
    let once = injector.inject(Request { pod, workload: &workload, context: &context }).ok()?.pod;
    let twice = injected(&injector, &once, &context);
    assert_eq!(twice.to_string(), once.to_string(), "{template}");
    let mut all = Vec::new();
    for (name, config) in [("its own", &injector), ("the built-in", &INJECTORS[0])] {
        let out = uninjected(config, &sorted(&once), &context);
        let excused = |what: &str| {
            let own = ["spec.", "container ", "team", "version", "new", "owner", "cost-center", "more"];
            let metadata = !what.contains(' ')
                && out.left.iter().any(|line| line.starts_with("labels and annotations: "));
            // A container that only the template of another config has is not removed, and named.
            let added = what == "container migrate"
                && out.left.iter().any(|line| line.starts_with("migrate stays in "));
            let ours = own.iter().any(|own| what.starts_with(own)) && !added;
            !ours && (added || metadata || is_named(&out.left, what))
        };
        let lost = lost(pod, &out.pod).into_iter().filter(|what| !excused(what));
        all.extend(lost.map(|what| format!("with {name} config: {what}")));
    }
    Some(all)
}

/// Where the pod has a version of a container of Istio's, its position is not recorded.
fn has_own_proxy(pod: &Value) -> bool {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array());
    lists.into_iter().flatten().flatten().any(|one| one["name"].as_str().unwrap().starts_with("istio-"))
}

#[test]
fn what_templates_change_comes_back() {
    let mut runner = TestRunner::deterministic();
    let strategy = (templates(), pods());
    let (mut taken, mut problems) = (0, BTreeMap::new());
    for _ in 0..count() {
        let (template, pod) = strategy.new_tree(&mut runner).unwrap().current();
        if has_own_proxy(&pod) {
            continue;
        }
        let Some(unrestored) = unrestored(&template, &pod) else { continue };
        taken += 1;
        for what in unrestored {
            let (count, _) = problems.entry(what).or_insert((0, format!("{template}\n{pod}")));
            *count += 1;
        }
    }
    assert!(problems.is_empty(), "of {taken} pods: {problems:#?}");
    assert!(taken > count() / 4, "{taken} of {} pods can be injected", count());
}

/// The agent has no record of a probe whose port it cannot know, nor of one that calls the agent itself.
#[test]
fn probes_without_a_record_come_back() {
    let context = InjectionContext::default();
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{
        "name": "web", "image": "i", "ports": [{"name": "http", "containerPort": 80}],
        "livenessProbe": {"httpGet": {"path": "/live", "port": "gone", "scheme": "HTTPS"}, "periodSeconds": 7},
        "readinessProbe": {"httpGet": {"path": "/healthz/ready", "port": 15020}},
        "startupProbe": {"tcpSocket": {"port": "gone"}},
        "lifecycle": {"preStop": {"httpGet": {"port": "gone"}}},
    }]}});
    for injector in &*INJECTORS {
        let once = injected(injector, &pod, &context);
        assert_eq!(injected(injector, &once, &context).to_string(), once.to_string());
        let out = uninjected(&INJECTORS[0], &sorted(&once), &context);
        let left: Vec<&String> = out.left.iter().filter(|line| line.contains("probe")).collect();
        assert_eq!((&out.pod["spec"]["containers"][0], left), (&pod["spec"]["containers"][0], vec![]));
    }
}

/// A field that was edited after the injection keeps its value and is reported.
#[test]
fn what_was_changed_since_is_named() {
    let context = InjectionContext::default();
    let template = json!({"spec": {
        "containers": [{"name": "istio-proxy", "image": "proxy:1"}, {"name": "web", "env": [{"name": "MESH", "value": "1"}]}],
        "securityContext": {"fsGroup": 7},
    }});
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "securityContext": {"fsGroup": 5}, "containers": [{"name": "web", "image": "i", "env": [{"name": "A", "value": "b"}]}]}});
    let mut once = injected(&injector_of(&template), &pod, &context);
    once["spec"]["securityContext"]["fsGroup"] = json!(9);
    once["spec"]["containers"][0]["image"] = json!("i:2");
    let out = uninjected(&INJECTORS[0], &once, &context);
    let mut expected = pod;
    expected["spec"]["securityContext"]["fsGroup"] = json!(9);
    expected["spec"]["containers"][0]["image"] = json!("i:2");
    assert_eq!(out.pod["spec"], expected["spec"]);
    assert!(
        out.left.iter().any(|line| line.starts_with("spec.securityContext fsGroup: changed")),
        "{:?}",
        out.left
    );
}
