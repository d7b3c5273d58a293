//! What Kubernetes would refuse of an injected pod: found when a config is checked and when a pod is
//! injected.

use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injected, Injector, Options, functions};

use crate::builtin::{deployment, inject, injector, with};

/// A template that is valid.
pub(crate) fn template() -> Value {
    json!({
        "metadata": {"labels": {"mesh": "on"}, "annotations": {"example.com/mesh": "on"}},
        "spec": {
            "initContainers": [{"name": "setup", "image": "setup"}],
            "containers": [{
                "name": "istio-proxy", "image": "proxy", "ports": [{"name": "metrics", "containerPort": 15090}],
                "env": [{"name": "A", "value": "1"}], "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "readinessProbe": {"httpGet": {"port": 15021}}, "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
                "securityContext": {"runAsUser": 1337},
            }],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    })
}

/// Pointer, value (null removes), and a part of the message.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "/spec/containers/0/env/0/valueFrom",
        r#"{"fieldRef": {"fieldPath": "metadata.name"}}"#,
        "value and valueFrom",
    ),
    ("/spec/containers/0/readinessProbe/exec", r#"{"command": ["x"]}"#, "exec and httpGet"),
    ("/spec/containers/0/lifecycle/preStop/sleep", r#"{"seconds": 1}"#, "exec and sleep"),
    ("/spec/containers/0/volumeMounts/0/name", r#""other""#, "no volume of the pod"),
    ("/spec/volumes/0/emptyDir", "null", "none is set"),
    ("/spec/volumes/0/configMap", r#"{"name": "a"}"#, "emptyDir and configMap"),
    ("/spec/volumes/1", r#"{"name": "Data", "emptyDir": {}}"#, "Data"),
    ("/spec/initContainers/0/image", "null", "image: missing"),
    ("/spec/initContainers/0/name", r#""set_up""#, "set_up"),
    ("/spec/containers/0/env/0/name", r#""A=1""#, "A=1"),
    ("/metadata/labels/mesh", r#""on off""#, "on off"),
    ("/metadata/annotations/a b", r#""x""#, "a b"),
    ("/spec/containers/0/ports/0/containerPort", "70000", "70000"),
    ("/spec/containers/0/ports/1", r#"{"name": "metrics", "containerPort": 15091}"#, "metrics"),
    ("/spec/containers/0/imagePullPolicy", r#""Sometimes""#, "Sometimes"),
    ("/spec/containers/0/resources/requests/cpu", r#""3""#, "request of cpu 3"),
    ("/spec/volumes/0/emptyDri", "{}", "did you mean emptyDir?"),
    ("/spec/containers/0/volumeMounts/0/readonly", "true", "did you mean readOnly?"),
    ("/spec/initContainers/0/readinessProbe", r#"{"exec": {"command": ["x"]}}"#, "none in an init container"),
    (
        "/spec/initContainers/1",
        r#"{"name": "istio-proxy", "image": "p", "restartPolicy": "Always"}"#,
        "istio-proxy",
    ),
];

/// Puts a value at a pointer whose last step may be new; null removes.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap() {
        Value::Array(items) => items.push(value),
        Value::Object(fields) if value.is_null() => {
            fields.shift_remove(key);
        }
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        other => panic!("{other}"),
    }
}

fn faulty(pointer: &str, value: &str) -> Value {
    let mut template = template();
    put(&mut template, pointer, serde_json::from_str(value).unwrap());
    template
}

pub(crate) fn config(templates: &Value, default: &[&str]) -> Result<Injector, Vec<String>> {
    let texts: Vec<(&str, String)> =
        templates.as_object().unwrap().iter().map(|(name, one)| (name.as_str(), one.to_string())).collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    config_of_texts(&texts, default)
}

fn config_of_texts(templates: &[(&str, &str)], default: &[&str]) -> Result<Injector, Vec<String>> {
    let texts: serde_json::Map<String, Value> =
        templates.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect();
    let text = json!({"policy": "enabled", "defaultTemplates": default, "templates": texts}).to_string();
    let config = Some(Source { name: "config".to_owned(), text });
    let sources = Sources { config, ..Sources::default() };
    sources
        .load(&functions(|_| None))
        .map(|settings| Injector::new(settings, Options::default()))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

fn injected(template: &Value) -> Injected {
    let injector = config(&json!({"sidecar": template}), &["sidecar"]).unwrap();
    inject(&injector, &deployment()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn faults_of_a_template_are_found_in_the_injected_pod() {
    assert_eq!(injected(&template()).invalid, []);
    for (pointer, value, part) in FAULTS {
        // The merge itself refuses some.
        let injector = config(&json!({"sidecar": faulty(pointer, value)}), &["sidecar"]).unwrap();
        match inject(&injector, &deployment()) {
            Ok(injected) => {
                assert_eq!(injected.invalid.len(), 1, "{pointer} {value}: {:?}", injected.invalid);
                let one = &injected.invalid[0];
                assert!(one.message.contains(part) && one.message.contains("template sidecar"), "{one}");
                assert!(one.by_config, "{one}");
            }
            Err(error) => assert!(error.to_string().contains(part), "{pointer} {value}: {error}"),
        }
    }
}

/// Faults that authors of templates make: a part of a template that adds a container and a volume, and a part
/// of the message. `%` stands for a container named helper with an image.
const MISTAKES: &[(&str, &str)] = &[
    ("containers: [{%, env: [{name: P, value: 8080}]}]", "found 8080; quote it"),
    ("containers: [{%, resources: {limits: {memory: 128mb}}}]", "128mb"),
    ("containers: [{%, securityContext: {capabilities: {add: NET_ADMIN}}}]", "capabilities.add of type list"),
    ("containers: [{%, ports: [{containerPort: \"15090\"}]}]", "remove the quotes"),
    ("containers: [{%, args: [-p, 15001]}]", "found 15001; quote it"),
    ("containers: [{%, lifecycle: {preStop: {exec: {command: sleep 10}}}}]", "command of type list"),
    ("containers: [{%, resources: {limits: [{cpu: 1}]}}]", "limits of type map"),
    ("imagePullSecrets: [mysecret]", "mysecret"),
    ("terminationGracePeriodSeconds: 60s", "60s"),
    ("nodeSelector: {ingress: true}", "found true; quote it"),
    ("containers: [{name: helper, $patch: remove}]", "$patch"),
    ("containers: [{name: helper, image: \"{{ .Values.global.helper }}\"}]", "a value that template"),
    ("containers: [{%, args: [\"--id={{ .Values.global.cluster.id }}\"]}]", "args[0]: <no value>"),
    (
        "containers: [{name: helper, image: \"{{ .Values.hub | default `` }}/helper:1\"}]",
        "\"/helper:1\" keeps kubelet",
    ),
    ("containers: [{name: helper, image: \"https://example.com/helper:1\"}]", "https://example.com/helper:1"),
    ("containers: [{name: helper, image: example.com/Team/helper}]", "in lower case"),
    (
        "containers: [{name: istio-proxy, livenessProbe: {httpGet: {port: admin}}}]",
        "port \"admin\" cannot be called",
    ),
    (
        "containers: [{%, env: [{name: P, valueFrom: {secretKeyRef: {key: k}}}]}]",
        "secretKeyRef.name: missing",
    ),
    ("containers: [{%, envFrom: [{configMapRef: {}}]}]", "configMapRef.name: missing"),
    (
        "containers: [{%, env: [{name: P, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1Mi}}}]}]",
        "divisor",
    ),
    (
        "{containers: [{%, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}], volumes: [{name: v, emptyDir: {}}]}",
        "privileged: true",
    ),
    ("{containers: [{%, env: [{name: A}]}], containers: [{%}]}", "the key \"containers\" twice"),
    (
        "{containers: [{%, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]}], volumes: [{name: v, emptyDir: {}}]}",
        "/a",
    ),
    ("containers: [{%, livenessProbe: {httpGet: {port: 0}}}]", "httpGet.port: 0"),
    ("containers: [{%, readinessProbe: {tcpSocket: {port: 99999}}}]", "tcpSocket.port: 99999"),
    ("containers: [{%, startupProbe: {grpc: {port: 0}}}]", "grpc.port: 0"),
    ("containers: [{%, livenessProbe: {httpGet: {port: admin}}}]", "port \"admin\" cannot be called"),
    ("containers: [{%, livenessProbe: {httpGet: {path: /}}}]", "httpGet.port: missing"),
    ("containers: [{%, livenessProbe: {httpGet: {port: 1}, exec: {command: [x]}}}]", "exec and httpGet"),
    (
        "containers: [{%, lifecycle: {preStop: {httpGet: {port: 1}, sleep: {seconds: 1}}}}]",
        "httpGet and sleep",
    ),
    ("containers: [{%}, {%, args: [x]}]", "\"helper\" twice"),
    // A pointer in Go: empty is not absent.
    ("runtimeClassName: \"\"", "runtimeClassName: \"\""),
    ("preemptionPolicy: \"\"", "preemptionPolicy: \"\""),
    ("securityContext: {fsGroupChangePolicy: \"\"}", "fsGroupChangePolicy: \"\""),
    ("containers: [{%, securityContext: {procMount: \"\"}}]", "procMount: \"\""),
    ("containers: [{%, restartPolicy: \"\"}]", "restartPolicy: \"\""),
    (
        "{containers: [{%, volumeMounts: [{name: v, mountPath: /v, mountPropagation: \"\"}]}], volumes: [{name: v, emptyDir: {}}]}",
        "mountPropagation: \"\"",
    ),
    ("containers: [{%, livenessProbe: {httpGet: {port: 1}, periodSeconds: 2147483648}}]", "2147483648"),
    ("containers: [{%, ports: [{name: a--b, containerPort: 1}]}]", "no two of them together"),
    ("containers: [{%, ports: [null]}]", "containerPort: missing"),
    ("containers: [{%, image: \"{{ (index .Spec.Containers 7).Image }}\"}]", "index out of range"),
];

/// In default templates, and in those that pods choose.
#[test]
fn mistakes_in_templates_are_found() {
    for (spec, part) in MISTAKES {
        let spec = spec.replace('%', "name: helper, image: \"helper:1\"");
        let sidecar = "spec: {containers: [{name: istio-proxy, image: \"p:1\"}]}";
        let custom =
            if spec.starts_with('{') { format!("spec: {spec}") } else { format!("spec: {{{spec}}}") };
        for default in [&["sidecar", "custom"][..], &["sidecar"]] {
            let config = config_of_texts(&[("sidecar", sidecar), ("custom", &custom)], default).unwrap();
            let problems = config.problems();
            let text = problems.join("\n");
            assert!(problems.iter().any(|problem| problem.contains(part)), "{custom} {default:?}: {text:?}");
            let own = |problem: &String| problem.contains("custom") || problem.contains("container helper");
            assert!(problems.iter().all(own), "{custom} {default:?}: {text}");
        }
    }
}

/// Istio's templates write `emptyDir:` without a value, and a volume without a source is an `emptyDir`.
/// Templates for other programs read what pods do not have.
#[test]
fn what_kubernetes_accepts_is_no_fault() {
    let proxy = "containers: [{name: istio-proxy, image: \"p:1\"}]";
    for spec in [
        "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone., whenUnsatisfiable: DoNotSchedule}]",
        // Without a label of this key, the API server has nothing to add.
        "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, \
         labelSelector: {matchLabels: {team: a}}, matchLabelKeys: [team]}]}}",
    ] {
        let text = format!("spec: {{{proxy}, {spec}}}");
        let config = config_of_texts(&[("sidecar", &text)], &["sidecar"]).unwrap();
        assert_eq!(config.problems(), [""; 0]);
    }
    let sidecar =
        "spec: {containers: [{name: istio-proxy, image: \"p:1\"}], volumes: [{name: v, emptyDir: }]}";
    let gateway = "metadata: {name: \"{{ .DeploymentName }}\"}";
    let config = config_of_texts(&[("sidecar", sidecar), ("kube-gateway", gateway)], &["sidecar"]).unwrap();
    assert_eq!(config.problems(), [""; 0]);
    assert_eq!(inject(&config, &deployment()).unwrap().invalid, []);
}

/// `lint` and the check of a new config.
#[test]
fn faults_of_any_template_are_errors_of_the_config() {
    let plain = config(&json!({"sidecar": template()}), &["sidecar"]).unwrap();
    assert_eq!(plain.problems(), [""; 0]);
    for (pointer, value, part) in FAULTS {
        let faulty = faulty(pointer, value);
        for (templates, default) in [
            (json!({"sidecar": faulty}), "sidecar"),
            (
                json!({"custom": faulty, "sidecar": {"spec": {"containers": [{"name": "istio-proxy", "image": "p"}]}}}),
                "sidecar",
            ),
        ] {
            let problems = config(&templates, &[default]).unwrap().problems();
            assert_eq!(problems.len(), 1, "{pointer} {value} {templates}: {problems:?}");
            assert!(problems[0].contains(part), "{problems:?}");
        }
    }
}

#[test]
fn built_in_templates_are_valid() {
    assert_eq!(injector().problems(), [""; 0]);
    for annotations in [
        json!({"inject.istio.io/templates": "sidecar", "sidecar.istio.io/nativeSidecar": "false"}),
        json!({"sidecar.istio.io/interceptionMode": "TPROXY"}),
        json!({"sidecar.istio.io/userVolume": r#"{"own": {"emptyDir": {}}}"#,
               "sidecar.istio.io/userVolumeMount": r#"{"own": {"mountPath": "/own", "readOnly": true}}"#}),
    ] {
        assert_eq!(inject(&injector(), &with(&deployment(), &annotations)).unwrap().invalid, []);
    }
}

#[test]
fn aliases_are_checked_as_a_whole() {
    let custom = json!({"spec": {"containers": [{"name": "istio-proxy", "image": "q", "resources": {"limits": {"cpu": "500m"}}}]}});
    let texts = json!({"sidecar": template().to_string(), "custom": custom.to_string()});
    for (aliases, count) in [(json!({}), 0), (json!({"both": ["sidecar", "custom"]}), 1)] {
        let config = json!({"policy": "enabled", "templates": texts, "aliases": aliases});
        let config = Some(Source { name: "config".to_owned(), text: config.to_string() });
        let settings = Sources { config, ..Sources::default() }.load(&functions(|_| None)).unwrap();
        let problems = Injector::new(settings, Options::default()).problems();
        assert!(
            problems.len() == count && problems.iter().all(|one| one.contains("request of cpu 1")),
            "{problems:?}"
        );
    }
}

#[test]
fn a_later_volume_of_another_kind_replaces() {
    let custom = json!({"spec": {"volumes": [{"name": "data", "configMap": {"name": "own"}}]}});
    let templates = json!({"sidecar": template(), "custom": custom});
    let injector = config(&templates, &["sidecar", "custom"]).unwrap();
    let injected = inject(&injector, &deployment()).unwrap();
    assert_eq!((&injected.invalid[..], &injector.problems()[..]), (&[][..], &[][..]));
    assert_eq!(injected.pod["spec"]["volumes"], json!([{"name": "data", "configMap": {"name": "own"}}]));
    // The pod's own volume is not lost to a template.
    let mut pod = deployment();
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "own"}}]);
    let error = inject(&injector, &pod).unwrap_err().to_string();
    assert!(error.contains("data") && error.contains("persistentVolumeClaim"), "{error}");
}

#[test]
fn what_the_pod_has_wrong_itself_is_not_reported() {
    let mut pod = deployment();
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "missing", "mountPath": "/x"}]);
    pod["spec"]["containers"][0]["ports"] = json!([{"name": "HTTP", "containerPort": 0}]);
    pod["spec"]["volumes"] = json!([{"name": "Own"}]);
    assert_eq!(inject(&injector(), &pod).unwrap().invalid, []);
}

/// The proxy's requests are beyond those of the pod.
#[test]
fn pod_level_resources_are_reported_or_raised() {
    let mut pod = deployment();
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    pod["spec"]["resources"] = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}});
    let injected = inject(&injector(), &pod).unwrap();
    let message = &injected.invalid[0].message;
    for part in ["spec.resources: request of cpu 100m", "web 100m, istio-proxy ", "raise-pod-level-resources"]
    {
        assert!(message.contains(part), "{message}");
    }
    // A regular container's limit is at most the pod's, too.
    pod["spec"]["resources"] = json!({"limits": {"cpu": "1"}});
    let regular = with(&pod, &json!({"sidecar.istio.io/nativeSidecar": "false"}));
    let injected = inject(&injector(), &regular).unwrap();
    let messages: Vec<&str> = injected.invalid.iter().map(|one| one.message.as_str()).collect();
    assert!(messages.len() == 1 && messages[0].contains("limit of cpu 1 is not accepted"), "{messages:?}");
    for pod in [&pod, &regular] {
        let key = "istio-iptables/raise-pod-level-resources";
        let mut raised = pod.clone();
        raised["metadata"]["annotations"][key] = json!("true");
        assert_eq!(inject(&injector(), &raised).unwrap().invalid, []);
    }
    pod["spec"]["resources"] = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}});
    let pod = with(&pod, &json!({"istio-iptables/raise-pod-level-resources": "true"}));
    let injected = inject(&injector(), &pod).unwrap();
    assert_eq!(injected.invalid, []);
    let again = inject(&injector(), &injected.pod).unwrap();
    assert_eq!(again.pod.to_string(), injected.pod.to_string());
}

/// The user's probe, hook or variable of another kind takes the place of the template's.
#[test]
fn another_kind_of_source_replaces() {
    let injector = config(&json!({"sidecar": template()}), &["sidecar"]).unwrap();
    let mut pod = deployment();
    pod["spec"]["containers"].as_array_mut().unwrap().push(json!({
        "name": "istio-proxy", "image": "auto", "readinessProbe": {"exec": {"command": ["y"]}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "lifecycle": {"preStop": {"sleep": {"seconds": 2}}},
    }));
    let injected = inject(&injector, &pod).unwrap();
    assert_eq!(injected.invalid, []);
    let proxy = injected.pod["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "istio-proxy")
        .unwrap();
    assert_eq!(
        proxy["env"][0],
        json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    );
    assert_eq!(proxy["readinessProbe"], json!({"exec": {"command": ["y"]}}));
    assert_eq!(proxy["lifecycle"]["preStop"], json!({"sleep": {"seconds": 2}}));
    let again = inject(&injector, &injected.pod).unwrap();
    assert_eq!(again.pod.to_string(), injected.pod.to_string());
}

/// The label is the template's, the constraint the pod's: valid without each other.
#[test]
fn keys_of_labels_that_the_pod_has_are_compared_once() {
    let sidecar =
        "{metadata: {labels: {team: a}}, spec: {containers: [{name: istio-proxy, image: \"p:1\"}]}}";
    let injector = config_of_texts(&[("sidecar", sidecar)], &["sidecar"]).unwrap();
    let mut pod = deployment();
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"team": "a"}}, "matchLabelKeys": ["team"],
    }]);
    let injected = inject(&injector, &pod).unwrap();
    let [one] = injected.invalid.as_slice() else { panic!("{:?}", injected.invalid) };
    assert!(one.message.contains("matchLabelKeys: \"team\" is not accepted"), "{one}");
    assert!(one.message.contains("template sidecar"), "{one}");
}
