//! No values, mesh config or templates of the injection are needed.

use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, functions};

use super::losses::{lost, sorted};
use super::{INJECTORS, injected, uninjected};

/// The built-in config with other values, by their pointers, and mesh config.
fn injector_with(values: &[(&str, Value)], mesh: &str) -> Injector {
    let mesh = Source { name: "mesh".to_owned(), text: mesh.to_owned() };
    let sources = Sources { mesh: Some(mesh).filter(|mesh| !mesh.text.is_empty()), ..Sources::default() };
    let mut settings = sources.load(&functions(|_| None)).unwrap();
    for (pointer, value) in values {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        settings.values.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    Injector::new(settings, Options::default())
}

/// Without annotations, and with those that values set, too.
fn annotated_pods() -> [Value; 3] {
    [
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "i"}]}}),
        json!({
            "metadata": {"labels": {"app": "web", "topology.istio.io/network": "own"}, "annotations": {
                "traffic.sidecar.istio.io/excludeInboundPorts": "8080", "prometheus.io/port": "8080", "owner": "shop"}},
            "spec": {"dnsPolicy": "ClusterFirst", "containers": [{
                "name": "web", "image": "i", "livenessProbe": {"httpGet": {"port": 80}}}]},
        }),
        json!({
            "metadata": {"labels": {"app": "web"}, "annotations": {"sidecar.istio.io/interceptionMode": "TPROXY",
                "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8"}},
            "spec": {"containers": [{"name": "web", "image": "i"}]},
        }),
    ]
}

/// The built-in config takes out what an injection with other values, mesh config or templates brought in.
#[test]
fn uninject_needs_neither_values_nor_templates() {
    let default = &INJECTORS[0];
    let pods = annotated_pods();
    let cni = || ("/pilot/cni/enabled", json!(true));
    let injectors: [(&[(&str, Value)], &str); 13] = [
        (&[cni()], ""),
        (&[cni(), ("/pilot/cni/provider", json!("multus"))], ""),
        (
            &[
                cni(),
                ("/global/proxy/excludeOutboundPorts", json!("80")),
                ("/global/proxy/excludeIPRanges", json!("10.0.0.0/8")),
            ],
            "",
        ),
        (&[("/global/network", json!("n1")), ("/global/meshID", json!("m"))], ""),
        (&[("/global/proxy/statusPort", json!(15055))], ""),
        (&[("/sidecarInjectorWebhook/rewriteAppHTTPProbe", json!(false))], ""),
        (
            &[
                ("/global/proxy/holdApplicationUntilProxyStarts", json!(true)),
                ("/global/proxy/capNetBindService", json!("true")),
            ],
            "",
        ),
        (&[("/global/mountMtlsCerts", json!(true)), ("/global/logAsJson", json!(true))], ""),
        (&[("/global/imagePullSecrets", json!(["regcred"])), ("/global/proxy/privileged", json!(true))], ""),
        (&[], "defaultConfig: {statusPort: 15055}"),
        (&[], "enablePrometheusMerge: false"),
        (&[], "defaultConfig: {interceptionMode: TPROXY, holdApplicationUntilProxyStarts: true}"),
        (&[], "defaultConfig: {proxyMetadata: {ISTIO_META_ENABLE_HBONE: 'true'}}"),
    ];
    let injectors =
        injectors.map(|(values, mesh)| (format!("{values:?} {mesh}"), injector_with(values, mesh)));
    let mut wrong = Vec::new();
    for (name, injector) in
        injectors.iter().map(|(name, one)| (name.as_str(), one)).chain([("custom", &INJECTORS[1])])
    {
        for (at, pod) in pods.iter().enumerate() {
            for native_sidecars in [true, false] {
                let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
                let once = injected(injector, pod, &context);
                let twice = injected(injector, &once, &context);
                assert_eq!(twice.to_string(), once.to_string());
                let out = uninjected(default, &sorted(&twice), &InjectionContext::default());
                if !lost(pod, &out.pod).is_empty() {
                    wrong.push(format!("{name}, pod {at}: {:?}: {}", lost(pod, &out.pod), out.pod));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// What the user set since the injection is the user's.
#[test]
fn added_annotation_that_has_changed_stays() {
    let injector = injector_with(&[("/pilot/cni/enabled", json!(true))], "");
    let context = InjectionContext::default();
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "i"}]}});
    let key = "traffic.sidecar.istio.io/includeInboundPorts";
    let mut once = injected(&injector, &pod, &context);
    once["metadata"]["annotations"][key] = json!("80");
    let twice = injected(&injector, &once, &context);
    for again in [once, twice] {
        let out = uninjected(&INJECTORS[0], &again, &context).pod;
        assert_eq!(out["metadata"]["annotations"], json!({key: "80"}));
    }
}
