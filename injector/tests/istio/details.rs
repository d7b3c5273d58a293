//! Details in which results differ, each as found with Istio's own code.

use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injector, Options, functions};

use crate::builtin::{deployment, inject, injector, with};

fn with_config(config: &Value) -> Injector {
    let config = Some(Source { name: "config.yaml".to_owned(), text: config.to_string() });
    let settings = Sources { config, ..Sources::default() }.load(&functions(|_| None)).unwrap();
    Injector::new(settings, Options::default())
}

#[test]
fn ports_that_the_agent_cannot_scrape_are_refused() {
    for (key, port) in [
        ("prometheus.io/port", "15090"),
        ("prometheus.io/port", "0"),
        ("prometheus.io/port", "http"),
        ("prometheus_io_port", "015020"),
        ("prometheus.istio.io/scrape-targets", "8080:/a,15020:/b"),
    ] {
        let error = inject(&injector(), &with(&deployment(), &json!({key: port}))).unwrap_err().to_string();
        assert!(error.contains("annotation prometheus."), "{key}: {port}: {error}");
        let unmerged = json!({key: port, "prometheus.istio.io/merge-metrics": "false"});
        let taken = inject(&injector(), &with(&deployment(), &unmerged)).is_ok();
        assert_eq!(taken, !key.contains("targets"), "{key}: {port}");
    }
    for port in ["8080", "+8080", "15020", ""] {
        let pod = with(&deployment(), &json!({"prometheus.io/port": port}));
        assert!(inject(&injector(), &pod).is_ok(), "{port}");
    }
}

#[test]
fn user_volumes_are_an_object_by_name_or_an_array_with_names() {
    // As Istio's template reads them: the name in an item is behind the index, and the last one counts.
    let istio = r#"{{ define "named" }}{{ range $name, $value := fromJSON . }}
    - name: "{{ $name }}"
      {{ toYaml $value | indent 6 }}{{ end }}{{ end -}}
spec:
  containers:
  - name: istio-proxy
    image: proxy
    volumeMounts: {{ template "named" (index .ObjectMeta.Annotations "sidecar.istio.io/userVolumeMount") }}
  volumes: {{ template "named" (index .ObjectMeta.Annotations "sidecar.istio.io/userVolume") }}
"#;
    let volume = json!({"name": "certs", "secret": {"secretName": "s"}});
    let mount = json!({"name": "certs", "mountPath": "/c"});
    for injector in [injector(), with_config(&json!({"templates": {"sidecar": istio}}))] {
        for (volumes, mounts) in [
            (json!([volume]), json!([mount])),
            (json!({"certs": {"secret": {"secretName": "s"}}}), json!({"certs": {"mountPath": "/c"}})),
        ] {
            let keys = json!({"sidecar.istio.io/userVolume": volumes.to_string(), "sidecar.istio.io/userVolumeMount": mounts.to_string()});
            let pod = inject(&injector, &with(&deployment(), &keys)).unwrap().pod;
            let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().cloned());
            let proxy =
                lists.into_iter().flatten().flatten().find(|item| item["name"] == "istio-proxy").unwrap();
            assert!(proxy["volumeMounts"].as_array().unwrap().contains(&mount), "{volumes}: {proxy}");
            assert!(pod["spec"]["volumes"].as_array().unwrap().contains(&volume), "{volumes}: {pod}");
        }
    }
    for bad in [
        "[{\"secret\": {}}]",
        "[{\"name\": \"\"}]",
        "{\"\": {}}",
        "[1]",
        "{\"v\": 1}",
        "[{\"name\": 1}]",
        "\"v\"",
        "{",
    ] {
        let keys = json!({"sidecar.istio.io/userVolume": bad});
        let error = inject(&injector(), &with(&deployment(), &keys)).unwrap_err().to_string();
        assert!(
            error.contains("userVolume: ") && error.contains("JSON array of objects with a name"),
            "{error}"
        );
    }
    // Kubernetes rejects such a mount, and a second injection finds nothing to match it by.
    for bad in ["{\"v\": {}}", "{\"v\": {\"mountPath\": \"\"}}", "[{\"name\": \"v\", \"mountPath\": 1}]"] {
        let keys = json!({"sidecar.istio.io/userVolumeMount": bad});
        let error = inject(&injector(), &with(&deployment(), &keys)).unwrap_err().to_string();
        assert!(error.ends_with("JSON array of objects with a name, each with mountPath"), "{error}");
    }
}

#[test]
fn a_scrape_target_without_a_path_has_the_usual_one() {
    let pod = with(&deployment(), &json!({"prometheus.istio.io/scrape-targets": "9090:"}));
    let injected = inject(&injector(), &pod).unwrap().pod.to_string();
    assert!(injected.contains(r#"{\"port\":\"9090\",\"path\":\"/metrics\"}"#), "{injected}");
}

#[test]
fn probes_go_to_the_port_that_the_agent_is_given() {
    let mut pod = with(&deployment(), &json!({"proxy.istio.io/config": "statusPort: 15999"}));
    pod["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/", "port": 80}});
    let injected = inject(&injector(), &pod).unwrap().pod;
    assert_eq!(injected["spec"]["containers"][0]["readinessProbe"]["httpGet"]["port"], 15999);
    assert_eq!(injected["metadata"]["annotations"]["prometheus.io/port"], "15999");
    assert_eq!(inject(&injector(), &injected).unwrap().pod.to_string(), injected.to_string());
}

#[test]
fn grpc_probes_keep_an_empty_service_and_the_agent_s_port() {
    let mut pod = deployment();
    pod["spec"]["containers"][0]["livenessProbe"] = json!({"grpc": {"port": 15020, "service": ""}});
    let injected = inject(&injector(), &pod).unwrap().pod;
    let noted = injected.to_string();
    assert!(
        noted.contains(r#"{\"/app-health/web/livez\":{\"grpc\":{\"port\":15020,\"service\":\"\"}}}"#),
        "{noted}"
    );
}

#[test]
fn zero_values_of_a_customized_proxy_do_not_win() {
    let mut pod = deployment();
    let proxy = json!({"name": "istio-proxy", "image": "auto", "env": [{"name": "POD_NAME", "value": ""}],
        "securityContext": {"capabilities": {"drop": []}}, "readinessProbe": {"timeoutSeconds": 0}});
    pod["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    let plain = inject(&injector(), &deployment()).unwrap().pod;
    let custom = inject(&injector(), &pod).unwrap().pod;
    let proxy = |pod: &Value| {
        pod["spec"]["initContainers"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["name"] == "istio-proxy")
            .unwrap()
            .clone()
    };
    assert_eq!(proxy(&custom)["securityContext"], proxy(&plain)["securityContext"]);
    assert_eq!(proxy(&custom)["readinessProbe"], proxy(&plain)["readinessProbe"]);
}

#[test]
fn a_selector_with_an_unknown_operator_selects_nothing() {
    let config = json!({"policy": "enabled", "defaultTemplates": ["t"], "templates": {"t": "spec: {}"},
        "neverInjectSelector": [{"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}, {"matchLabels": {"c": "d"}}]});
    let settings = with_config(&config).settings;
    let warned = settings
        .warnings
        .iter()
        .any(|warning| warning.contains("neverInjectSelector[0]: ignored: matchExpressions[0].operator"));
    assert!(warned, "{:?}", settings.warnings);
    assert_eq!(settings.injector.rules.never.len(), 1);
}

#[test]
fn the_proxy_s_user_has_a_default() {
    let config = json!({"policy": "enabled", "defaultTemplates": ["t"],
        "templates": {"t": "metadata: {annotations: {ids: '{{ .ProxyUID }} {{ .ProxyGID }}'}}"}});
    let injected = inject(&with_config(&config), &deployment()).unwrap().pod;
    assert_eq!(injected["metadata"]["annotations"]["ids"], "1337 1337");
}

#[test]
fn templates_call_methods_of_kubernetes_and_protobuf_types() {
    let text = concat!(
        "metadata: {annotations: {",
        "name: '{{ .ObjectMeta.GetName }} {{ .ObjectMeta.GetNamespace }} {{ index .ObjectMeta.GetLabels `app` }}', ",
        "cpu: '{{ range .Spec.Containers }}{{ .Resources.Limits.Cpu }} {{ .Resources.Limits.Memory.String }} ",
        "{{ .Resources.Requests.Cpu }} {{ .Resources.Requests.Cpu.IsZero }} {{ toJson .Resources }}{{ end }}', ",
        "drain: '{{ .ProxyConfig.DrainDuration.AsDuration }} {{ .ProxyConfig.DrainDuration.AsDuration.Seconds }} ",
        "{{ .ProxyConfig.GetDrainDuration.GetSeconds }} {{ toJson .ProxyConfig.DrainDuration.AsDuration }}'}}",
    );
    let config = json!({"policy": "enabled", "defaultTemplates": ["t"], "templates": {"t": text}});
    let mut pod = with(&deployment(), &json!({"proxy.istio.io/config": "drainDuration: 90s"}));
    pod["metadata"]["name"] = json!("web-1");
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "1024Mi", "cpu": 0.5}});
    let injected = inject(&with_config(&config), &pod).unwrap().pod;
    let annotation = |key: &str| injected["metadata"]["annotations"][key].clone();
    assert_eq!(annotation("name"), "web-1  web");
    assert_eq!(annotation("cpu"), r#"500m 1Gi 0 true {"limits":{"cpu":"500m","memory":"1Gi"}}"#);
    assert_eq!(annotation("drain"), "1m30s 90 90 90000000000");
}
