//! What Istio accepts in the traffic settings of a mesh config.

use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::functions;

/// Mesh configs that Istio refuses, and the field that is at fault.
const REFUSED: &[(&str, &str)] = &[
    (
        "localityLbSetting: {distribute: [{from: a, to: {b: 100}}], failover: [{from: a, to: b}]}",
        "localityLbSetting",
    ),
    (
        "localityLbSetting: {failover: [{from: a, to: b}], failoverPriority: [topology.kubernetes.io/zone]}",
        "localityLbSetting",
    ),
    ("localityLbSetting: {distribute: [{from: a, to: {b: 99}}]}", "localityLbSetting.distribute"),
    ("localityLbSetting: {distribute: [{from: a, to: {b: 100, c: 0}}]}", "localityLbSetting.distribute"),
    ("localityLbSetting: {distribute: [{from: a//b, to: {b: 100}}]}", "localityLbSetting.distribute"),
    ("localityLbSetting: {distribute: [{from: a*b, to: {b: 100}}]}", "localityLbSetting.distribute"),
    (
        "localityLbSetting: {distribute: [{from: a, to: {b: 100}}, {from: a/x, to: {b: 100}}]}",
        "localityLbSetting.distribute",
    ),
    (
        "localityLbSetting: {distribute: [{from: '*', to: {b: 100}}, {from: a, to: {b: 100}}]}",
        "localityLbSetting.distribute",
    ),
    ("localityLbSetting: {distribute: [{from: a, to: {b/*: 50, b/c: 50}}]}", "localityLbSetting.distribute"),
    ("localityLbSetting: {failover: [{from: a, to: a}]}", "localityLbSetting.failover"),
    ("localityLbSetting: {failover: [{from: a/x, to: b}]}", "localityLbSetting.failover"),
    ("localityLbSetting: {failover: a}", "localityLbSetting.failover"),
    ("localityLbSetting: {enabled: 'yes'}", "localityLbSetting.enabled"),
    ("zoneAwareLbSetting: {failover: [{from: a, to: '*'}]}", "zoneAwareLbSetting.failover"),
    (
        "zoneAwareLbSetting: {failoverPriority: [topology.istio.io/subzone]}",
        "zoneAwareLbSetting.failoverPriority",
    ),
    ("defaultTrafficPolicy: {connectionPool: {}}", "defaultTrafficPolicy.connectionPool"),
    (
        "defaultTrafficPolicy: {connectionPool: {http: {maxRetries: -1}}}",
        "defaultTrafficPolicy.connectionPool.http.maxRetries",
    ),
    (
        "defaultTrafficPolicy: {connectionPool: {http: {idleTimeout: 500us}}}",
        "defaultTrafficPolicy.connectionPool.http.idleTimeout",
    ),
    (
        "defaultTrafficPolicy: {connectionPool: {http: {h2UpgradePolicy: UPGRADE, useClientProtocol: true}}}",
        "defaultTrafficPolicy.connectionPool.http",
    ),
    (
        "defaultTrafficPolicy: {connectionPool: {tcp: {tcpKeepalive: {interval: 0s}}}}",
        "defaultTrafficPolicy.connectionPool.tcp.tcpKeepalive.interval",
    ),
    (
        "defaultTrafficPolicy: {outlierDetection: {consecutiveLocalOriginFailures: 5}}",
        "defaultTrafficPolicy.outlierDetection",
    ),
    (
        "defaultTrafficPolicy: {outlierDetection: {maxEjectionPercent: 101}}",
        "defaultTrafficPolicy.outlierDetection.maxEjectionPercent",
    ),
    ("defaultInboundHttpRetryPolicy: {attempts: -1}", "defaultInboundHttpRetryPolicy.attempts"),
    ("defaultInboundHttpRetryPolicy: {retryOn: 5xx}", "defaultInboundHttpRetryPolicy"),
    ("defaultInboundHttpRetryPolicy: {attempts: 0, backoff: 1s}", "defaultInboundHttpRetryPolicy"),
    (
        "defaultInboundHttpRetryPolicy: {attempts: 1, retryOn: '5xx,x'}",
        "defaultInboundHttpRetryPolicy.retryOn",
    ),
    ("defaultInboundHttpRetryPolicy: {attempts: 1, retryOn: '599'}", "defaultInboundHttpRetryPolicy.retryOn"),
    ("defaultInboundHttpRetryPolicy: {attempts: 1, backoff: 0s}", "defaultInboundHttpRetryPolicy.backoff"),
    ("defaultHttpRetryPolicy: {attempts: many}", "defaultHttpRetryPolicy.attempts"),
    ("certificates: [{dnsNames: a}]", "certificates[0].dnsNames"),
];

const ACCEPTED: &[&str] = &[
    "localityLbSetting: {distribute: [{from: a/x, to: {b/c: 40, b/*: 60}}, {from: a/*, to: {b: 100}}, {from: '*', to: {c: 100}}]}",
    "localityLbSetting: {enabled: true, failover: [{from: a, to: b}], failoverPriority: [version]}",
    "localityLbSetting: {failoverPriority: [topology.kubernetes.io/zone]}",
    "zoneAwareLbSetting: {failover: [{from: a, to: b}], failoverPriority: [version]}",
    "defaultTrafficPolicy: {connectionPool: {tcp: {maxConnections: 5, connectTimeout: 1s, idleTimeout: 0s}}}",
    "defaultTrafficPolicy: {connectionPool: {http: {h2UpgradePolicy: UPGRADE, maxRetries: 3}}, outlierDetection: \
     {splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 5, interval: 10s}}",
    "defaultInboundHttpRetryPolicy: {attempts: 2, retryOn: '5xx,503,unavailable', backoff: 25ms}",
    "defaultInboundHttpRetryPolicy: {attempts: 0}",
    "defaultHttpRetryPolicy: {attempts: 0, retryOn: 5xx}",
    "certificates: [{secretName: a, dnsNames: [b]}]",
];

fn problems(mesh: &str) -> Vec<String> {
    let mesh = Some(Source { name: "mesh.yaml".to_owned(), text: mesh.to_owned() });
    let loaded = Sources { mesh, ..Sources::default() }.load(&functions(|_| None));
    loaded.err().into_iter().flatten().map(|error| error.to_string()).collect()
}

#[test]
fn traffic_settings_that_istio_refuses_are_refused() {
    for (mesh, field) in REFUSED {
        let errors = problems(mesh);
        let named = errors.first().is_some_and(|error| error.starts_with(&format!("mesh.yaml: {field}: ")));
        assert!(named, "{mesh}: {errors:?}");
    }
}

#[test]
fn traffic_settings_that_istio_accepts_are_accepted() {
    for mesh in ACCEPTED {
        assert_eq!(problems(mesh), [""; 0], "{mesh}");
    }
}
