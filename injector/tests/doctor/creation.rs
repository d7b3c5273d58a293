//! Pods that are not created, or do not come up, although the webhook injects them.

use serde_json::{Value, json};
use sidecar_injector::doctor::Problem;

use super::breakages::object;
use super::healthy::{cluster, plain_pod};
use super::{diagnose, problems};

const SECURITY: &str = "pods \"web-5d4f-x\" is forbidden: violates PodSecurity \"baseline:latest\": non-default capabilities \
    (container \"istio-init\" must not include \"NET_ADMIN\", \"NET_RAW\" in securityContext.capabilities.add)";

fn event(namespace: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "x", "namespace": namespace}, "reason": "FailedCreate",
        "involvedObject": {"kind": "ReplicaSet", "namespace": namespace, "name": "web-5d4f"},
        "message": format!("Error creating: {message}"), "lastTimestamp": "2026-05-31T23:50:00Z",
    })
}

fn replica_set(replicas: u64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-5d4f", "namespace": "shop"},
        "spec": {"replicas": 2}, "status": {"replicas": replicas}})
}

#[test]
fn rejections_by_others_are_found_with_their_cause() {
    for (message, fix) in [
        (SECURITY, "pilot.cni.enabled"),
        (
            "pods \"a\" is forbidden: exceeded quota: small, requested: cpu=100m, used: cpu=1, limited: cpu=1",
            "describe resourcequota",
        ),
        (
            "pods \"a\" is forbidden: maximum memory usage per Container is 64Mi, but limit is 1Gi",
            "describe limitrange",
        ),
        (
            "pods \"a\" is forbidden: unable to validate against any security context constraint: [provider \"restricted-v2\": \
             .initContainers[0].capabilities.add: Invalid value: \"NET_ADMIN\": capability may not be added]",
            "--platform openshift",
        ),
        (
            "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no",
            "get validatingadmissionpolicies",
        ),
        (
            "admission webhook \"other.example.com\" denied the request: no",
            "get validatingwebhookconfigurations",
        ),
        ("pods \"a\" is forbidden: no", "get events"),
    ] {
        let mut all = cluster();
        all.push(event("shop", message));
        let diagnosis = diagnose(&all, &[]);
        assert_eq!(problems(&diagnosis), [Problem::PodDenied], "{message}");
        let finding = &diagnosis.findings[0];
        assert!(finding.fix.contains(fix), "{}", finding.fix);
        assert!(finding.seen.starts_with("10 min ago: Error creating"), "{}", finding.seen);
        assert_eq!(finding.object, "ReplicaSet shop/web-5d4f");
        // Pods of a namespace without injection are not the injector's concern.
        let mut all = cluster();
        all.push(event("plain", message));
        assert_eq!(problems(&diagnose(&all, &[])), []);
    }
}

#[test]
fn only_the_present_counts() {
    let with = |more: &[Value], namespaces: &[&str]| {
        let mut all = cluster();
        all.push(event("shop", SECURITY));
        all.extend_from_slice(more);
        problems(&diagnose(&all, namespaces))
    };
    assert_eq!(with(&[replica_set(0)], &[]), [Problem::PodDenied]);
    assert_eq!(with(&[replica_set(2)], &[]), [], "its pods were created since");
    let none = json!({"apiVersion": "apps/v1", "kind": "ReplicaSetList", "items": []});
    assert_eq!(with(&[none], &[]), [], "the workload is gone");
    assert_eq!(with(&[], &["plain"]), [Problem::NotSelected], "another namespace was asked about");
    let workload = |kind: &str, object: Value| {
        let mut all = cluster();
        let mut event = event("shop", SECURITY);
        event["involvedObject"]["kind"] = json!(kind);
        let mut object = object;
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": "web-5d4f", "namespace": "shop"});
        all.extend([event, object]);
        !problems(&diagnose(&all, &[])).is_empty()
    };
    for (kind, failing, well) in [
        (
            "DaemonSet",
            json!({"status": {"desiredNumberScheduled": 2}}),
            json!({"status": {"desiredNumberScheduled": 2, "currentNumberScheduled": 2}}),
        ),
        (
            "StatefulSet",
            json!({"spec": {"replicas": 1}}),
            json!({"spec": {"replicas": 1}, "status": {"replicas": 1}}),
        ),
        (
            "ReplicationController",
            json!({"spec": {"replicas": 1}}),
            json!({"spec": {"replicas": 1}, "status": {"replicas": 1}}),
        ),
        ("Job", json!({"status": {}}), json!({"status": {"active": 1}})),
        (
            "Job",
            json!({"status": {"conditions": [{"type": "Complete", "status": "False"}]}}),
            json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
        ),
    ] {
        assert!(workload(kind, failing) && !workload(kind, well), "{kind}");
    }
}

#[test]
fn pod_security_is_foreseen() {
    let enforced = |level: &str| {
        let mut all = cluster();
        object(&mut all, "Namespace", "shop")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] =
            json!(level);
        diagnose(&all, &[])
    };
    for level in ["baseline", "restricted"] {
        let diagnosis = enforced(level);
        assert_eq!(problems(&diagnosis), [Problem::PodSecurity], "{level}");
        let finding = &diagnosis.findings[0];
        assert!(
            finding.seen.contains(
                "container istio-init: securityContext.capabilities.add: NET_ADMIN, NET_RAW not accepted"
            ),
            "{}",
            finding.seen
        );
        assert!(
            finding.fix.contains("pilot.cni.enabled") && finding.fix.contains("namespace shop"),
            "{}",
            finding.fix
        );
    }
    assert_eq!(problems(&enforced("privileged")), []);
}

#[test]
fn a_missing_control_plane_is_found() {
    let mut all = cluster();
    all.retain(|object| object["metadata"]["name"] != "istiod");
    let diagnosis = diagnose(&all, &[]);
    assert_eq!(problems(&diagnosis), [Problem::ControlPlaneMissing]);
    assert_eq!(diagnosis.findings[0].object, "Service istio-system/istiod");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}});
    let mut all = cluster();
    all.push(map("kube-root-ca.crt"));
    let diagnosis = diagnose(&all, &["shop"]);
    assert_eq!(problems(&diagnosis), [Problem::ControlPlaneMissing]);
    assert!(diagnosis.findings[0].seen.contains("istio-ca-root-cert"));
    all.push(map("istio-ca-root-cert"));
    assert_eq!(problems(&diagnose(&all, &["shop"])), []);
}

#[test]
fn every_entry_s_rules_path_service_and_conditions_count() {
    let with = |at: Option<usize>, change: &dyn Fn(&mut Value)| {
        let mut all = cluster();
        let hooks = object(&mut all, "MutatingWebhookConfiguration", "istio-sidecar-injector");
        for (number, hook) in hooks["webhooks"].as_array_mut().unwrap().iter_mut().enumerate() {
            if at.is_none_or(|at| at == number) {
                change(hook);
            }
        }
        problems(&diagnose(&all, &[]))
    };
    let rules =
        |field: &'static str, value: Value| move |hook: &mut Value| hook["rules"][0][field] = value.clone();
    for (field, value) in [
        ("operations", json!(["UPDATE"])),
        ("resources", json!(["pods/status"])),
        ("apiVersions", json!(["v2"])),
        ("apiGroups", json!(["apps"])),
        ("scope", json!("Cluster")),
    ] {
        assert!(with(None, &rules(field, value.clone())).contains(&Problem::WebhookRules), "{field}");
        assert!(with(Some(1), &rules(field, value)).contains(&Problem::WebhookRules), "{field}, one entry");
    }
    assert_eq!(
        with(Some(2), &|hook| hook["clientConfig"]["service"]["path"] = json!("/other")),
        [Problem::WebhookPath]
    );
    assert_eq!(
        with(Some(2), &|hook| hook["clientConfig"]["service"]["path"] = json!("/inject/cluster/c")),
        []
    );
    let other = |hook: &mut Value| hook["clientConfig"]["service"]["name"] = json!("other");
    assert_eq!(with(Some(3), &other), [Problem::ServiceMissing]);
    let port = |hook: &mut Value| hook["clientConfig"]["service"]["port"] = json!(444);
    assert_eq!(with(Some(3), &port), [Problem::ServicePort]);
    let condition =
        |hook: &mut Value| hook["matchConditions"] = json!([{"name": "c", "expression": "false"}]);
    assert_eq!(with(Some(0), &condition), [Problem::MatchConditions]);
}

#[test]
fn a_job_that_waits_for_its_proxy_is_found() {
    let with = |app: Value| {
        let mut all = cluster();
        let mut pod = plain_pod("shop", "job");
        pod["metadata"]["ownerReferences"][0]["kind"] = json!("Job");
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "istio-proxy", "image": "proxy:1"}));
        pod["status"]["containerStatuses"] = json!([
            {"name": "job", "state": app}, {"name": "istio-proxy", "state": {"running": {}}}]);
        all.push(pod);
        problems(&diagnose(&all, &[]))
    };
    assert_eq!(with(json!({"terminated": {"exitCode": 0}})), [Problem::JobNeverEnds]);
    assert_eq!(with(json!({"running": {}})), []);
}
