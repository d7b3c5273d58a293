//! What the cluster says about failed calls, in the words in which people find it.

use serde_json::{Value, json};
use sidecar_injector::doctor::Problem;

use super::healthy::cluster;
use super::{diagnose, problems};

fn failed(error: &str) -> String {
    format!(
        "Error creating: Internal error occurred: failed calling webhook \"namespace.sidecar-injector.istio.io\": failed to call \
         webhook: Post \"https://istio-sidecar-injector.istio-system.svc:443/inject?timeout=10s\": {error}"
    )
}

fn event(message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "x", "namespace": "shop"}, "reason": "FailedCreate",
        "involvedObject": {"kind": "ReplicaSet", "namespace": "shop", "name": "web-5d4f"}, "message": message,
    })
}

const ERRORS: [(&str, &str, &str); 13] = [
    ("remote error: tls: internal error", "the message says how", "logs"),
    (
        "x509: certificate signed by unknown authority (possibly because of \"crypto/rsa: verification error\" while trying to \
         verify candidate authority certificate \"Kubernetes.cluster.local\")",
        "caBundle",
        "rollout restart deployment istio-sidecar-injector",
    ),
    ("x509: certificate has expired or is not yet valid", "not valid at this time", "rollout restart"),
    ("x509: certificate is not valid for any names, but wanted to match a", "no name", "rollout restart"),
    ("x509: certificate is valid for a, not b", "istio-sidecar-injector.istio-system.svc", "rollout restart"),
    (
        "no endpoints available for service \"istio-sidecar-injector\"",
        "no replica",
        "logs -l app=istio-sidecar-injector,istio=sidecar-injector,istio.io/rev=default",
    ),
    (
        "dial tcp: lookup istio-sidecar-injector.istio-system.svc: no such host",
        "the Service did not exist",
        "get service istio-sidecar-injector",
    ),
    (
        "service \"istio-sidecar-injector\" not found",
        "the Service",
        "get mutatingwebhookconfiguration istio-sidecar-injector",
    ),
    ("Service Unavailable", "no_proxy", ".svc"),
    ("dial tcp 10.0.0.1:443: connect: connection refused", "nothing listened", "logs"),
    ("context deadline exceeded", "firewall", "15017"),
    ("net/http: request canceled (Client.Timeout exceeded while awaiting headers)", "firewall", "15017"),
    ("dial tcp 10.0.0.1:443: i/o timeout", "firewall", "15017"),
];

#[test]
fn errors_lead_to_their_causes() {
    for (error, cause, fix) in ERRORS {
        let mut all = cluster();
        all.push(event(&failed(error)));
        let diagnosis = diagnose(&all, &[]);
        assert_eq!(problems(&diagnosis), [Problem::CallFailed], "{error}");
        let finding = &diagnosis.findings[0];
        assert!(finding.cause.contains(cause), "{error}: {}", finding.cause);
        assert!(finding.fix.contains(fix), "{error}: {}", finding.fix);
        assert_eq!(finding.object, "ReplicaSet shop/web-5d4f");
    }
}

#[test]
fn a_timeout_is_not_blamed_on_the_firewall_while_no_replica_is_ready() {
    let mut all = cluster();
    all.push(event(&failed("context deadline exceeded")));
    for object in &mut all {
        if object["kind"] == "EndpointSlice" {
            object["endpoints"] = json!([]);
        }
    }
    let diagnosis = diagnose(&all, &[]);
    assert_eq!(problems(&diagnosis), [Problem::NoEndpoints, Problem::CallFailed]);
    assert!(!diagnosis.findings[1].cause.contains("firewall"), "{:?}", diagnosis.findings[1]);
}

#[test]
fn the_older_wording_and_conditions_count_too() {
    let old = "Error creating: Internal error occurred: failed calling admission webhook \"sidecar-injector.istio.io\": Post \
               https://istio-sidecar-injector.istio-system.svc:443/inject: x509: certificate signed by unknown authority";
    let mut all = cluster();
    let condition =
        json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": old});
    all.push(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-5d4f", "namespace": "shop"},
        "status": {"conditions": [condition]},
    }));
    all.push(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "status": {"conditions": [condition]},
    }));
    let diagnosis = diagnose(&all, &[]);
    assert_eq!(problems(&diagnosis), [Problem::CallFailed]);
    assert_eq!(diagnosis.findings[0].object, "ReplicaSet shop/web-5d4f", "the Deployment only repeats it");
}

#[test]
fn the_same_error_is_reported_once() {
    let mut all = cluster();
    for _ in 0..3 {
        all.push(event(&failed("context deadline exceeded")));
    }
    let diagnosis = diagnose(&all, &[]);
    assert_eq!(problems(&diagnosis), [Problem::CallFailed]);
    assert_eq!(diagnosis.findings[0].object, "ReplicaSet shop/web-5d4f and 2 more");
}

#[test]
fn refused_pods_are_explained() {
    let denied = "Error creating: admission webhook \"namespace.sidecar-injector.istio.io\" denied the request: annotation \
                  sidecar.istio.io/interceptionMode: \"redirect\" is not accepted";
    let forbidden = "Error creating: Pod \"web\" is invalid: spec.initContainers[1].livenessProbe: Forbidden: may not be set for \
                     init containers without restartPolicy=Always";
    for (message, cause) in [(denied, "interceptionMode"), (forbidden, "another mutating webhook")] {
        let mut all = cluster();
        all.push(event(message));
        let diagnosis = diagnose(&all, &[]);
        assert_eq!(problems(&diagnosis), [Problem::PodDenied]);
        assert!(diagnosis.findings[0].cause.contains(cause), "{:?}", diagnosis.findings[0]);
    }
    let mut all = cluster();
    let mut other = event("Back-off restarting failed container");
    other["reason"] = json!("BackOff");
    all.push(other);
    assert_eq!(problems(&diagnose(&all, &[])), [], "not about the creation of pods");
}
