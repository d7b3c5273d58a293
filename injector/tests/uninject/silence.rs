//! What an injection does not record is named when it is taken out: nothing is lost in silence.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};
use sidecar_injector::inject::{InjectionContext, Injector, Request};

use super::INJECTORS;
use super::losses::{lost, sorted};
use crate::builtin::workload;

/// What `uninject` lost of the pod and did not name; `None` where the pod cannot be injected.
fn silent(injector: &Injector, pod: &Value, context: &InjectionContext, stored: bool) -> Option<Vec<String>> {
    let workload = workload();
    let injected = injector.inject(Request { pod, workload: &workload, context }).ok()?.pod;
    let injected = if stored { sorted(&injected) } else { injected };
    let out = injector.uninject(Request { pod: &injected, workload: &workload, context }).unwrap().unwrap();
    let lost = lost(pod, &out.pod);
    Some(lost.into_iter().filter(|what| !is_named(&out.left, what)).collect())
}

pub(super) fn is_named(left: &[String], what: &str) -> bool {
    let (list, item) = what.split_once(' ').unwrap_or(("", what));
    let mut parts = left.iter().flat_map(|line| line.split(';'));
    parts.any(|part| part.contains(list) && part.contains(item))
}

fn pairs(
    choices: &'static [(&'static str, &'static [&'static str])],
    most: usize,
) -> impl Strategy<Value = Map<String, Value>> {
    let pair = prop::sample::select(choices)
        .prop_flat_map(|(key, values)| (Just(key), prop::sample::select(values)));
    prop::collection::vec(pair, 0..=most)
        .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect())
}

const LABELS: &[(&str, &[&str])] = &[
    ("app", &["web"]),
    ("version", &["v1"]),
    ("team", &["own", "platform"]),
    ("istio.io/rev", &["default", "canary", ""]),
    ("security.istio.io/tlsMode", &["istio", "disabled"]),
    ("service.istio.io/canonical-name", &["web", "own"]),
    ("service.istio.io/canonical-revision", &["latest", "v2"]),
    ("topology.istio.io/network", &["n1"]),
];

const ANNOTATIONS: &[(&str, &[&str])] = &[
    ("istio.io/rev", &["default", "canary"]),
    ("kubectl.kubernetes.io/default-container", &["web", "other"]),
    ("kubectl.kubernetes.io/default-logs-container", &["web"]),
    ("prometheus.io/path", &["/metrics", "/stats/prometheus", ""]),
    ("prometheus.io/port", &["8080", "15020", ""]),
    ("prometheus.io/scrape", &["true", "false", ""]),
    ("prometheus/io/path", &["/metrics", ""]),
    ("prometheus_io_port", &["8080"]),
    ("prometheus.istio.io/scrape-targets", &["8080:/metrics", "8080", ",", "8080, 9100:/x"]),
    ("prometheus.istio.io/merge-metrics", &["false", "true"]),
    ("sidecar.istio.io/nativeSidecar", &["true", "false"]),
    ("sidecar.istio.io/interceptionMode", &["REDIRECT", "TPROXY", "NONE"]),
    ("sidecar.istio.io/rewriteAppHTTPProbers", &["false", "true"]),
    ("status.sidecar.istio.io/port", &["0", "15021"]),
    ("proxy.istio.io/config", &["holdApplicationUntilProxyStarts: true", "statusPort: 15022"]),
    ("traffic.sidecar.istio.io/excludeInboundPorts", &["15020", "80"]),
    ("sidecar.istio.io/userVolume", &["{\"extra\": {\"emptyDir\": {}}}"]),
    ("cost-center", &["7", "8"]),
    ("owner", &["platform", "shop"]),
];

fn volumes() -> impl Strategy<Value = Vec<Value>> {
    let names = prop::sample::subsequence(
        vec!["istio-envoy", "istio-data", "istiod-ca-cert", "extra", "own", "plain"],
        0..=3,
    );
    let sources = vec![
        json!({"emptyDir": {}}),
        json!({"emptyDir": {"medium": "Memory"}}),
        json!({"hostPath": {"path": "/d"}}),
    ];
    (names, prop::sample::select(sources)).prop_map(|(names, source)| {
        let volume = |name: &str| {
            let mut volume = source.clone();
            volume["name"] = json!(name);
            volume
        };
        names.into_iter().map(volume).collect()
    })
}

fn apps() -> impl Strategy<Value = Vec<Value>> {
    let probes = vec![
        json!({}),
        json!({"livenessProbe": {"httpGet": {"port": "http", "path": "/live"}}, "ports": [{"name": "http", "containerPort": 80}]}),
        json!({"readinessProbe": {"tcpSocket": {"port": 5}, "timeoutSeconds": 3}}),
        json!({"startupProbe": {"grpc": {"port": 9}}, "lifecycle": {"preStop": {"httpGet": {"port": 80, "scheme": "HTTPS"}}}}),
        json!({"volumeMounts": [{"name": "own", "mountPath": "/own"}, {"name": "istio-envoy", "mountPath": "/e"}]}),
        json!({"env": [{"name": "MESH", "value": "0"}, {"name": "A"}], "resources": {"limits": {"cpu": "1"}}}),
    ];
    prop::collection::vec(prop::sample::select(probes), 1..=3).prop_map(|apps| {
        let named = apps.into_iter().zip(["web", "other", "third"]).map(|(mut app, name)| {
            app["name"] = json!(name);
            app["image"] = json!("app:1");
            app
        });
        named.collect()
    })
}

/// A container of Istio's that the user customizes, with its place.
fn own_containers() -> impl Strategy<Value = Vec<(bool, usize, Value)>> {
    let proxies = vec![
        json!({"name": "istio-proxy", "image": "auto"}),
        json!({"name": "istio-proxy", "image": "auto", "restartPolicy": "Always", "ports": [{"containerPort": 9901}]}),
        json!({"name": "istio-proxy", "image": "own:1", "ports": [{"containerPort": 9901}], "env": [{"name": "A", "value": "1"}]}),
        json!({"name": "istio-init", "image": "own:1"}),
        json!({"name": "istio-validation", "image": "own:1"}),
    ];
    prop::collection::vec((0_usize..3, prop::sample::select(proxies)), 0..=2).prop_map(|all| {
        let mut kept: Vec<(bool, usize, Value)> = Vec::new();
        for (at, container) in all {
            if !kept.iter().any(|(_, _, other)| other["name"] == container["name"]) {
                let native = container.get("restartPolicy").is_some();
                let proxy = container["name"] == "istio-proxy";
                kept.push((!proxy || native, at, container));
            }
        }
        kept
    })
}

fn settings() -> impl Strategy<Value = Map<String, Value>> {
    let all = vec![
        ("dnsPolicy", json!("Default")),
        ("dnsConfig", json!({"searches": ["own"], "nameservers": ["10.0.0.2"]})),
        ("tolerations", json!([{"key": "own"}])),
        (
            "hostAliases",
            json!([{"ip": "10.0.0.1", "hostnames": ["own"]}, {"ip": "10.0.0.3", "hostnames": ["x"]}]),
        ),
        ("serviceAccountName", json!("own")),
        ("priorityClassName", json!("high")),
        ("securityContext", json!({"fsGroup": 5, "runAsUser": 9})),
        ("imagePullSecrets", json!([{"name": "mesh"}, {"name": "own"}])),
        ("terminationGracePeriodSeconds", json!(5)),
        ("readinessGates", json!([{"conditionType": "c"}])),
        ("shareProcessNamespace", json!(false)),
    ];
    prop::sample::subsequence(all, 0..=5)
        .prop_map(|all| all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

pub(super) fn pods() -> impl Strategy<Value = Value> {
    let init = prop::sample::subsequence(vec!["migrate", "fetch"], 0..=2);
    (pairs(LABELS, 4), pairs(ANNOTATIONS, 5), volumes(), apps(), own_containers(), settings(), init).prop_map(
        |(labels, annotations, volumes, mut apps, own, settings, init)| {
            let mut init: Vec<Value> =
                init.into_iter().map(|name| json!({"name": name, "image": "i"})).collect();
            for (is_init, at, container) in own {
                let list = if is_init { &mut init } else { &mut apps };
                list.insert(at.min(list.len()), container);
            }
            let mut spec = json!({"containers": apps, "initContainers": init, "volumes": volumes});
            spec.as_object_mut().unwrap().extend(settings);
            json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
        },
    )
}

/// The number of pods: `UNINJECT_PODS`.
pub(super) fn count() -> usize {
    std::env::var("UNINJECT_PODS").ok().map_or(100, |text| text.parse().unwrap())
}

#[test]
fn nothing_is_lost_in_silence() {
    let mut runner = TestRunner::deterministic();
    let strategy = (pods(), any::<bool>(), any::<bool>(), any::<bool>());
    let (mut taken, mut problems) = (0, BTreeMap::new());
    for _ in 0..count() {
        let (pod, custom, native, stored) = strategy.new_tree(&mut runner).unwrap().current();
        let context = InjectionContext { native_sidecars: native, ..InjectionContext::default() };
        let Some(silent) = silent(&INJECTORS[usize::from(custom)], &pod, &context, stored) else { continue };
        taken += 1;
        for what in silent {
            let (count, _) =
                problems.entry(what).or_insert((0, format!("custom {custom}, native {native}: {pod}")));
            *count += 1;
        }
    }
    assert!(problems.is_empty(), "of {taken} pods: {problems:#?}");
    assert!(taken > count() / 3, "{taken} of {} pods can be injected", count());
}
