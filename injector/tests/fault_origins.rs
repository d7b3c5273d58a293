//! Who is named for a fault of an injected pod: its author, a template, or another part of the config.

use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injector, Options, functions};

use crate::builtin::{deployment, inject, injector, with};
use crate::validity::{config, template};

#[test]
fn faults_of_annotations_name_the_annotation() {
    for (annotations, parts) in [
        (
            json!({"sidecar.istio.io/proxyCPU": "3", "sidecar.istio.io/proxyCPULimit": "2"}),
            ["request of cpu 3", "annotation sidecar.istio.io/proxyCPU"],
        ),
        (
            json!({"sidecar.istio.io/userVolume": r#"{"own": {"comfigMap": {"name": "a"}}}"#}),
            ["did you mean configMap?", "annotation sidecar.istio.io/userVolume"],
        ),
        (
            json!({"sidecar.istio.io/userVolume": r#"{"own": {"emptyDir": {}}}"#,
                   "sidecar.istio.io/userVolumeMount": r#"{"own": {"mountPath": "/own", "readonly": true}}"#}),
            ["did you mean readOnly?", "annotation sidecar.istio.io/userVolumeMount"],
        ),
        (
            json!({"sidecar.istio.io/userVolumeMount": r#"{"nothing": {"mountPath": "/own"}}"#}),
            ["\"nothing\" is no volume", "annotation sidecar.istio.io/userVolumeMount"],
        ),
    ] {
        let injected = inject(&injector(), &with(&deployment(), &annotations)).unwrap();
        let found = injected.invalid.iter().find(|one| one.message.contains(parts[0]));
        let found = found.unwrap_or_else(|| panic!("{parts:?}: {:?}", injected.invalid));
        assert!(found.message.contains(parts[1]) && !found.by_config, "{found}");
    }
}

/// Annotations of a pod, or fields of its own proxy container: a part of the message, and what is named.
const CAUSED_BY_PODS: &[(&str, &str, &str)] = &[
    (
        r#"{"sidecar.istio.io/userVolume": "{\"own\": {\"secret\": {}}}"}"#,
        "secret",
        "annotation sidecar.istio.io/userVolume",
    ),
    (
        r#"{"sidecar.istio.io/userVolume": "{\"own\": {}}"}"#,
        "none is set",
        "annotation sidecar.istio.io/userVolume",
    ),
    (
        r#"{"sidecar.istio.io/userVolume": "{\"own\": {\"emptyDir\": {}, \"configMap\": {\"name\": \"a\"}}}"}"#,
        "configMap and emptyDir",
        "annotation sidecar.istio.io/userVolume",
    ),
    (
        r#"{"sidecar.istio.io/userVolume": "[{\"name\": \"own\", \"hostPath\": {}}]"}"#,
        "hostPath",
        "annotation sidecar.istio.io/userVolume",
    ),
    (
        r#"{"sidecar.istio.io/userVolumeMount": "[{\"name\": \"a\", \"mountPath\": \"/x\", \"subPath\": \"../a\"}]"}"#,
        "subPath",
        "annotation sidecar.istio.io/userVolumeMount",
    ),
    (
        r#"{"sidecar.istio.io/proxyImageType": "De bug"}"#,
        "image",
        "annotation sidecar.istio.io/proxyImageType",
    ),
    (
        r#"{"proxy.istio.io/config": "image: {imageType: \"a b\"}"}"#,
        "image",
        "annotation proxy.istio.io/config",
    ),
    (
        r#"{"sidecar.istio.io/proxyMemoryLimit": "1Mi", "sidecar.istio.io/proxyMemory": "2Mi"}"#,
        "request of memory",
        "annotation sidecar.istio.io/proxyMemoryLimit and annotation sidecar.istio.io/proxyMemory",
    ),
    (r#"{"restartPolicy": "Never"}"#, "restartPolicy", "the pod's own container istio-proxy"),
    (
        r#"{"resources": {"requests": {"cpu": "9"}}}"#,
        "request of cpu 9",
        "the pod's own container istio-proxy",
    ),
    (
        r#"{"ports": [{"name": "http-envoy-prom", "containerPort": 9}]}"#,
        "http-envoy-prom",
        "the pod's own container istio-proxy",
    ),
];

/// What a pod's annotation or own container causes is for the author of the pod, however the value has come
/// where it is: without a word of the annotation's text, in a field that only the template writes.
#[test]
fn what_a_pod_causes_is_not_put_down_to_the_config() {
    for (own, part, origin) in CAUSED_BY_PODS {
        let own: Value = serde_json::from_str(own).unwrap();
        let mut pod = deployment();
        if origin.starts_with("annotation") {
            pod["metadata"]["annotations"] = own;
        } else {
            let mut proxy = json!({"name": "istio-proxy", "image": "auto"});
            proxy.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            pod["spec"]["containers"].as_array_mut().unwrap().push(proxy);
        }
        let injected = inject(&injector(), &pod).unwrap();
        let found = injected.invalid.iter().find(|one| one.message.contains(part));
        let found = found.unwrap_or_else(|| panic!("{part}: {:?}", injected.invalid));
        assert!(found.message.contains(origin) && !found.by_config, "{found}");
        // In an injected pod, a volume is the pod's.
        let again = inject(&injector(), &injected.pod).unwrap();
        assert!(again.invalid.iter().all(|one| !one.by_config && one.message.contains(origin)), "{again:?}");
    }
}

/// What the config itself puts onto each pod.
#[test]
fn faults_of_the_rest_of_the_config_name_its_part() {
    let proxy = json!({"spec": {"containers": [{"name": "istio-proxy", "image": "p"}]}}).to_string();
    let config =
        json!({"policy": "enabled", "templates": {"sidecar": proxy}, "injectedAnnotations": {"a b": "x"}});
    let source = |name: &str, value: &Value| Some(Source { name: name.to_owned(), text: value.to_string() });
    let values = json!({"global": {"network": "my network"}});
    let sources =
        Sources { config: source("config", &config), values: source("values", &values), mesh: None };
    let settings = sources.load(&functions(|_| None)).unwrap();
    let injected = inject(&Injector::new(settings, Options::default()), &deployment()).unwrap();
    for (part, origin) in [("a b", "injectedAnnotations"), ("my network", "global.network")] {
        let found = injected.invalid.iter().find(|one| one.message.contains(part));
        let found = found.unwrap_or_else(|| panic!("{part}: {:?}", injected.invalid));
        assert!(
            found.message.contains(&format!("set by {origin}")) || found.message.contains(origin),
            "{found}"
        );
        assert!(found.by_config && !found.message.contains("report this"), "{found}");
    }
}

/// Of several templates, that one is named without which there is no fault.
#[test]
fn the_template_is_named_that_brings_the_fault() {
    let sidecar = template();
    for (custom, part) in [
        (json!({"spec": {"volumes": [{"name": "data", "$patch": "delete"}]}}), "no volume of the pod"),
        (
            json!({"spec": {"containers": [{"name": "istio-proxy", "resources": {"limits": {"cpu": "500m"}}}]}}),
            "request of cpu 1",
        ),
        (
            json!({"spec": {"containers": [{"name": "istio-proxy", "ports": [{"name": "metrics", "containerPort": 9}]}]}}),
            "metrics",
        ),
    ] {
        let templates = json!({"sidecar": sidecar, "custom": custom});
        let injector = config(&templates, &["sidecar", "custom"]).unwrap();
        let injected = inject(&injector, &deployment()).unwrap();
        let [one] = injected.invalid.as_slice() else { panic!("{:?}", injected.invalid) };
        assert!(one.by_config && one.message.contains(part), "{one}");
        assert!(one.message.contains("template custom"), "{one}");
        // A pod may choose it: beside the default one, and by an alias.
        let injector = config(&templates, &["sidecar"]).unwrap();
        let problems = injector.problems();
        assert!(problems.len() == 1 && problems[0].contains(part), "{problems:?}");
    }
}

/// A pod may have a fault in each of many thousand volumes: 20 are named, and how many more there are.
#[test]
fn of_many_faults_the_first_are_named() {
    let volumes: serde_json::Map<String, Value> =
        (0..5_000).map(|n| (format!("Own{n}"), json!({"emptyDir": {}}))).collect();
    let pod = with(&deployment(), &json!({"sidecar.istio.io/userVolume": json!(volumes).to_string()}));
    let injected = inject(&injector(), &pod).unwrap();
    assert_eq!(injected.invalid.len(), 21);
    assert!(injected.invalid[20].message.starts_with("4980 more"), "{}", injected.invalid[20]);
    assert!(injected.invalid.iter().all(|one| !one.by_config));
}

#[test]
fn templates_that_add_one_container_to_both_lists_are_named() {
    let custom = json!({"spec": {
        "containers": [{"name": "helper", "image": "h"}], "initContainers": [{"name": "helper", "image": "h"}],
    }});
    let templates = json!({"sidecar": template(), "custom": custom});
    let problems = config(&templates, &["sidecar", "custom"]).unwrap().problems();
    assert!(
        problems.len() == 1 && problems[0].contains("the templates sidecar, custom add it"),
        "{problems:?}"
    );
}

/// A valid pod, what a template adds to it, a part of the message, and whether every pod has the fault.
const BROKEN_BY_A_TEMPLATE: &[(&str, &str, &str, bool)] = &[
    (
        r#"{"containers": [{"name": "app", "image": "app", "lifecycle": {"preStop": {"sleep": {"seconds": 10}}}}]}"#,
        r#"{"terminationGracePeriodSeconds": 5}"#,
        "sleep: 10 seconds",
        false,
    ),
    (
        r#"{"containers": [{"name": "app", "image": "app", "securityContext": {"procMount": "Unmasked"}}], "hostUsers": false}"#,
        r#"{"hostUsers": true}"#,
        "procMount: Unmasked",
        false,
    ),
    (
        r#"{"containers": [{"name": "app", "image": "app", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}"#,
        r#"{"volumes": [{"name": "v", "$patch": "delete"}]}"#,
        "is no volume of the pod",
        false,
    ),
    (
        r#"{"containers": [{"name": "app", "image": "app", "securityContext": {"runAsUser": 0}}]}"#,
        r#"{"securityContext": {"runAsNonRoot": true}}"#,
        "runAsNonRoot: true in the pod",
        false,
    ),
    (
        r#"{"containers": [{"name": "app", "image": "app"}], "hostnameOverride": "own"}"#,
        r#"{"setHostnameAsFQDN": true}"#,
        "hostnameOverride",
        false,
    ),
    (
        r#"{"containers": [{"name": "app", "image": "app", "livenessProbe": {"exec": {"command": ["x"]}}}]}"#,
        r#"{"containers": [{"name": "app", "livenessProbe": {"successThreshold": 3}}]}"#,
        "successThreshold: 3",
        true,
    ),
    (
        r#"{"containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "4"}}}]}"#,
        r#"{"containers": [{"name": "app", "resources": {"limits": {"cpu": "1"}}}]}"#,
        "request of cpu 4",
        false,
    ),
];

/// A valid pod leaves its author nothing to correct.
#[test]
fn the_template_is_named_that_breaks_a_valid_pod() {
    for (own, added, part, by_config) in BROKEN_BY_A_TEMPLATE {
        let spec: Value = serde_json::from_str(own).unwrap();
        let pod = json!({"metadata": {"labels": {"app": "a"}}, "spec": spec});
        let added: Value = serde_json::from_str(added).unwrap();
        let templates = json!({"sidecar": template(), "custom": {"spec": added}});
        let injected = inject(&config(&templates, &["sidecar", "custom"]).unwrap(), &pod).unwrap();
        let [one] = injected.invalid.as_slice() else { panic!("{part}: {:?}", injected.invalid) };
        let text = &one.message;
        assert!(text.contains(part) && text.contains(": correct template custom"), "{one}");
        assert!(one.by_config == *by_config && !text.contains("correct the pod's own"), "{one}");
    }
}

/// One annotation sets them in two containers.
#[test]
fn one_fault_in_several_places_is_said_once() {
    let annotations = json!({"sidecar.istio.io/proxyCPU": "3", "sidecar.istio.io/proxyCPULimit": "2"});
    let injected = inject(&injector(), &with(&deployment(), &annotations)).unwrap();
    let [one] = injected.invalid.as_slice() else { panic!("{:?}", injected.invalid) };
    for container in ["[istio-init]", "[istio-proxy]"] {
        assert_eq!(one.message.matches(container).count(), 1, "{one}");
    }
}
