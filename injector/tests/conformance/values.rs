//! Every value of Istio's chart, changed by itself: the built-in templates do with it what Istio's templates
//! do.

use serde_json::{Value, json};
use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_VALUES, Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, Request, functions};
use sidecar_injector::pod::workload::Workload;
use sidecar_injector::yaml;

use crate::common::{comparable, read};

/// Values of which not every text or map is accepted, or that have an effect only beside others; and what the
/// charts leave out.
const SPECIAL: [(&str, &str); 27] = [
    ("/global/caName", r#""GkeWorkloadCertificate""#),
    ("/global/imagePullPolicy", r#""Always""#),
    ("/global/pilotCertProvider", r#""kubernetes""#),
    ("/global/trustBundleName", r#""bundle""#),
    ("/global/trustDomain", r#""td.example""#),
    ("/global/proxy/capNetBindService", r#""true""#),
    ("/global/proxy/capNetBindService", "true"),
    ("/global/proxy/holdApplicationUntilProxyStarts", "true"),
    ("/global/proxy/includeIPRanges", r#""10.0.0.0/8""#),
    ("/global/proxy/excludeIPRanges", r#""10.1.0.0/16""#),
    ("/global/proxy/includeInboundPorts", r#""80,81""#),
    ("/global/proxy/excludeInboundPorts", r#""82""#),
    ("/global/proxy/includeOutboundPorts", r#""83""#),
    ("/global/proxy/excludeOutboundPorts", r#""84""#),
    ("/global/proxy/lifecycle", r#"{"preStop": {"exec": {"command": ["sleep", "1"]}}}"#),
    ("/global/proxy/resources", r#"{"requests": {"cpu": "1", "memory": null}}"#),
    ("/global/proxy/seccompProfile", r#"{"type": "RuntimeDefault"}"#),
    ("/global/proxy/tracer", r#""datadog""#),
    ("/global/proxy/tracer", r#""lightstep""#),
    ("/gateways/securityContext", r#"{"runAsNonRoot": true}"#),
    ("/pilot/crlConfigMapName", r#""crl""#),
    ("/pilot/env", r#"{"ENABLE_CLUSTER_TRUST_BUNDLE_API": true}"#),
    ("/pilot/cni", r#"{"enabled": true, "provider": "default"}"#),
    ("/pilot/cni", r#"{"enabled": true, "provider": "multus"}"#),
    ("/global/proxy_init/image", r#""registry.example/init:1""#),
    ("/global/proxy/image", r#""registry.example/proxy:1""#),
    ("/global/imagePullSecrets", r#"["one", "two"]"#),
];

/// Other values of a leaf than its own.
fn others(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => json!(!flag),
        Value::Number(number) => json!(number.as_i64().unwrap() + 7),
        Value::String(text) => json!(format!("{text}x")),
        Value::Array(_) => json!(["x"]),
        Value::Object(_) | Value::Null => json!({"x": "y"}),
    }
}

fn leaves(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), found));
        }
        _ => found.push((path.to_owned(), others(value))),
    }
}

fn with(values: &Value, path: &str, value: &Value) -> Value {
    let mut values = values.clone();
    let mut at = &mut values;
    for key in path.split('/').skip(1) {
        at = &mut at[key];
    }
    *at = value.clone();
    values
}

fn pods() -> Vec<Value> {
    let spec = json!({"containers": [{"name": "app", "image": "a", "ports": [{"containerPort": 80}]}, {"name": "b"}]});
    let annotations = [
        json!({}),
        json!({"apm.datadoghq.com/env": "{\"A\": \"1\"}", "sidecar.istio.io/nativeSidecar": "false"}),
        json!({"sidecar.istio.io/interceptionMode": "TPROXY", "sidecar.istio.io/bootstrapOverride": "boot"}),
        json!({"sidecar.istio.io/interceptionMode": "NONE", "kubectl.kubernetes.io/default-container": "b"}),
        json!({"sidecar.istio.io/interceptionMode": "NONE", "sidecar.istio.io/nativeSidecar": "false"}),
        json!({"sidecar.istio.io/capNetBindService": "true", "status.sidecar.istio.io/port": "0"}),
        json!({"sidecar.istio.io/capNetBindService": "true", "sidecar.istio.io/interceptionMode": "TPROXY"}),
        json!({"proxy.istio.io/config": "{proxyMetadata: {ISTIO_META_ENABLE_HBONE: 'true', IPTABLES_TRACE_LOGGING: 'true'}}"}),
        json!({
            "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.2.0.0/16", "traffic.sidecar.istio.io/excludeOutboundPorts": "9",
            "traffic.sidecar.istio.io/excludeInboundPorts": "15020,7", "k8s.v1.cni.cncf.io/networks": "[{\"name\":\"n\"}]",
            "traffic.sidecar.istio.io/kubevirtInterfaces": "net1", "istio.io/reroute-virtual-interfaces": "net2",
            "traffic.sidecar.istio.io/excludeInterfaces": "eth1", "sidecar.istio.io/proxyCPU": "10m",
        }),
        json!({
            "proxy.istio.io/config": "{tracing: {tlsSettings: {mode: SIMPLE, caCertificates: /a/b/ca.pem}}}",
            "sidecar.istio.io/userVolume": "{\"v\": {\"emptyDir\": {}}}",
            "sidecar.istio.io/userVolumeMount": "{\"v\": {\"mountPath\": \"/v\"}}",
        }),
        json!({"inject.istio.io/templates": "gateway", "sidecar.istio.io/bootstrapOverride": "boot"}),
    ];
    annotations
        .into_iter()
        .map(|annotations| json!({"metadata": {"labels": {"app": "web"}, "annotations": annotations}, "spec": spec}))
        .collect()
}

fn injector(config: &str, values: &Value) -> Injector {
    let source = |text: String| Some(Source { name: "x".to_owned(), text });
    let sources = Sources {
        config: source(config.to_owned()),
        values: source(values.to_string()),
        mesh: source(read("mesh-config.yaml").to_string()),
    };
    Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default())
}

/// The injected pod, or how it is refused. The order of environment variables is not compared. Istio leaves
/// the hardening of a gateway's container to its chart.
fn injected(injector: &Injector, pod: &Value) -> Value {
    let workload = Workload {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
    };
    let context = InjectionContext { native_sidecars: true, ..InjectionContext::default() };
    let Ok(injected) = injector.inject(Request { pod, workload: &workload, context: &context }) else {
        return json!("refused");
    };
    let mut pod = comparable(&injected.pod);
    // It records what the template adds.
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("sidecar.istio.io/status");
    let gateway = pod.pointer("/metadata/annotations/inject.istio.io~1templates").is_some();
    for list in ["containers", "initContainers"] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for key in ["env", "volumeMounts"] {
                if let Some(all) = container.get_mut(key).and_then(Value::as_array_mut) {
                    all.sort_by_key(|item| item["name"].to_string());
                }
            }
            if gateway && let Some(context) = container["securityContext"].as_object_mut() {
                context.retain(|key, _| key.starts_with("runAs") && key != "runAsNonRoot");
            }
        }
    }
    if let Some(volumes) = pod["spec"]["volumes"].as_array_mut() {
        volumes.sort_by_key(|item| item["name"].to_string());
    }
    pod
}

pub(crate) fn the_built_in_templates_do_with_every_value_what_istio_does() {
    let (istio, values) = (read("inject-config.yaml").to_string(), read("inject-values.json"));
    let mut all = vec![("/".to_owned(), values["x"].clone())];
    leaves(&values, "", &mut all);
    let mut builtin = Vec::new();
    leaves(&yaml::read(BUILTIN_VALUES).unwrap(), "", &mut builtin);
    builtin.retain(|(path, _)| all.iter().all(|(known, _)| known != path));
    all.extend(builtin);
    all.extend(SPECIAL.map(|(path, value)| (path.to_owned(), serde_json::from_str(value).unwrap())));
    let mut effects = 0;
    let mut wrong = Vec::new();
    let base: Vec<Value> = pods().iter().map(|pod| injected(&injector(&istio, &values), pod)).collect();
    for (path, value) in &all {
        let values = if path == "/" { values.clone() } else { with(&values, path, value) };
        let (ours, theirs) = (injector(BUILTIN_CONFIG, &values), injector(&istio, &values));
        for (pod, base) in pods().iter().zip(&base) {
            let (ours, theirs) = (injected(&ours, pod), injected(&theirs, pod));
            effects += usize::from(theirs != *base);
            if ours != theirs {
                wrong.push(format!(
                    "{path} = {value}, {}:\n  ours:  {ours}\n  Istio: {theirs}",
                    pod["metadata"]
                ));
            }
        }
    }
    println!("{} values, {effects} effects", all.len());
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(all.len() > 100 && effects > 200, "{} values, {effects} effects", all.len());
}
