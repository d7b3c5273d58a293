//! Clusters that are put together or saved differently, and hostile ones.

use serde_json::{Value, json};
use sidecar_injector::doctor::{Problem, as_json, as_text};
use sidecar_injector::manifests::{Certificates, Options};

use super::breakages::object;
use super::healthy::{HOST, IssuedCert, cluster, encoded, installation, options};
use super::{diagnose, problems};

fn without(kind: &str) -> Vec<Value> {
    cluster().into_iter().filter(|object| object["kind"] != kind).collect()
}

#[test]
fn what_was_not_saved_is_reported_and_not_called_missing() {
    for (kind, named) in [
        ("EndpointSlice", "EndpointSlices"),
        ("Secret", "no Secret"),
        ("ConfigMap", "ConfigMaps"),
        ("Namespace", "Namespaces"),
        ("Pod", "Pods"),
        ("Service", "Services"),
        ("Deployment", "Deployments"),
        ("Event", "Events"),
        ("MutatingWebhookConfiguration", "MutatingWebhookConfigurations"),
        ("NetworkPolicy", "NetworkPolicies"),
        ("RoleBinding", "RoleBindings"),
    ] {
        let diagnosis = diagnose(&without(kind), &[]);
        assert_eq!(diagnosis.findings, [], "without {kind}");
        assert!(
            diagnosis.unchecked.iter().any(|what| what.contains(named)),
            "{kind}: {:?}",
            diagnosis.unchecked
        );
    }
}

#[test]
fn pods_and_deployments_that_were_not_saved_do_not_make_a_selector_wrong() {
    let mut all = without("Pod");
    all.retain(|object| object["kind"] != "Deployment");
    let diagnosis = diagnose(&all, &[]);
    assert_eq!(diagnosis.findings, []);
    assert!(["Pods: none", "Deployments: none"].iter().all(|what| named(&diagnosis.unchecked, what)));
    // Something else than a Deployment may run it.
    let mut all = without("Pod");
    object(&mut all, "Service", "istio-sidecar-injector")["spec"]["selector"] = json!({"app": "another"});
    assert_eq!(problems(&diagnose(&all, &[])), []);
}

/// The API server creates nothing in it any more.
#[test]
fn a_namespace_that_is_being_deleted_needs_no_label() {
    let mut all = cluster();
    let labels = json!({"istio.io/rev": "gone"});
    all.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old", "labels": labels}}));
    assert_eq!(problems(&diagnose(&all, &[])), [Problem::UnknownRevision]);
    let namespace = object(&mut all, "Namespace", "old");
    namespace["metadata"]["deletionTimestamp"] = json!("2026-05-31T00:00:00Z");
    namespace["status"] = json!({"phase": "Terminating"});
    assert_eq!(diagnose(&all, &[]).findings, []);
    let requested = diagnose(&all, &["old"]);
    assert_eq!(requested.findings, []);
    assert!(named(&requested.unchecked, "namespace old: it is being deleted"), "{:?}", requested.unchecked);
}

/// A change by hand of what Helm or another program manages does not last.
#[test]
fn a_finding_names_the_owner_of_its_object() {
    let mut all = cluster();
    let hooks = object(&mut all, "MutatingWebhookConfiguration", "istio-sidecar-injector");
    hooks["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
    let own = diagnose(&all, &[]);
    assert!(
        as_text(&own).contains("\n  owner  an installation of sidecar-injector\n  seen   "),
        "{}",
        as_text(&own)
    );
    let hooks = object(&mut all, "MutatingWebhookConfiguration", "istio-sidecar-injector");
    hooks["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("istiod");
    let of_helm = diagnose(&all, &[]);
    assert!(as_text(&of_helm).contains("\n  owner  Helm release istiod\n"), "{}", as_text(&of_helm));
    let json: Value = serde_json::from_str(&as_json(&of_helm)).unwrap();
    assert_eq!(json["findings"][0]["owner"], "Helm release istiod");
}

fn named(unchecked: &[String], what: &str) -> bool {
    unchecked.iter().any(|line| line.starts_with(what))
}

/// The API server's own lists name their kind: an empty one is an answer.
#[test]
fn an_empty_list_of_a_kind_was_looked_for() {
    let list = |kind: &str| json!({"apiVersion": "v1", "kind": format!("{kind}List"), "items": []});
    for (kind, problem) in [
        ("MutatingWebhookConfiguration", Problem::WebhookMissing),
        ("Service", Problem::ServiceMissing),
        ("EndpointSlice", Problem::NoEndpoints),
        ("ConfigMap", Problem::ConfigMissing),
    ] {
        let mut all = without(kind);
        all.push(list(kind));
        let diagnosis = diagnose(&all, &[]);
        assert_eq!(problems(&diagnosis), [problem], "{kind}");
        assert!(diagnosis.unchecked.is_empty(), "{:?}", diagnosis.unchecked);
    }
    let empty = json!({"apiVersion": "v1", "kind": "List", "items": []});
    let diagnosis = diagnose(&[empty, json!(null), json!([]), json!({"a": 1})], &[]);
    assert_eq!((diagnosis.objects, diagnosis.findings), (0, Vec::new()));
}

#[test]
fn older_endpoints_count_as_well() {
    let endpoints = |addresses: Value| {
        let mut all = without("EndpointSlice");
        all.push(json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "istio-sidecar-injector", "namespace": "istio-system"}, "subsets": [{"addresses": addresses}],
        }));
        problems(&diagnose(&all, &[]))
    };
    assert_eq!(endpoints(json!([{"ip": "10.0.0.1"}])), []);
    assert_eq!(endpoints(json!([])), [Problem::NoEndpoints]);
}

#[test]
fn the_fix_restarts_the_ca_injector_of_cert_manager() {
    let managed = Options { certificates: Certificates::CertManager, ..options("") };
    let others = cluster().into_iter().skip(installation(&options("")).len());
    let mut all: Vec<Value> = installation(&managed).into_iter().chain(others).collect();
    assert_eq!(problems(&diagnose(&all, &[])), []);
    let foreign = encoded(&IssuedCert::new(HOST, -1, 80).ca);
    let configuration = object(&mut all, "MutatingWebhookConfiguration", "istio-sidecar-injector");
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"]["caBundle"] = foreign.clone();
    }
    let diagnosis = diagnose(&all, &[]);
    assert_eq!(problems(&diagnosis), [Problem::CaMismatch]);
    assert!(diagnosis.findings[0].fix.contains("cainjector"), "{}", diagnosis.findings[0].fix);
}

/// While a CA is replaced, both are trusted.
#[test]
fn one_good_ca_in_a_bundle_is_enough() {
    let (old, new) = (IssuedCert::new(HOST, -300, -10), IssuedCert::new(HOST, -10, 80));
    let mut all = cluster();
    let both = encoded(&format!("{}{}", old.ca, new.ca));
    let configuration = object(&mut all, "MutatingWebhookConfiguration", "istio-sidecar-injector");
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"]["caBundle"] = both.clone();
    }
    object(&mut all, "Secret", "istio-sidecar-injector-tls")["data"]["tls.crt"] = encoded(&new.leaf);
    assert_eq!(problems(&diagnose(&all, &[])), []);
}

/// `openssl req -x509` makes such a one: its own CA.
#[test]
fn a_certificate_that_is_its_own_ca_is_trusted() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2026, 5, 20), rcgen::date_time_ymd(2026, 12, 1));
    let pem = encoded(&params.self_signed(&key).unwrap().pem());
    let mut all = cluster();
    let configuration = object(&mut all, "MutatingWebhookConfiguration", "istio-sidecar-injector");
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"]["caBundle"] = pem.clone();
    }
    object(&mut all, "Secret", "istio-sidecar-injector-tls")["data"]["tls.crt"] = pem;
    assert_eq!(problems(&diagnose(&all, &[])), []);
}

#[test]
fn istiod_s_root_is_compared_by_its_config_map() {
    let issued = IssuedCert::new(HOST, -10, 80);
    let at = |root: &str| {
        let mut all = without("Secret");
        all.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert", "namespace": "istio-system"},
            "data": {"root-cert.pem": root},
        }));
        for object in &mut all {
            if ["Service", "EndpointSlice", "MutatingWebhookConfiguration"]
                .contains(&object["kind"].as_str().unwrap())
            {
                let text =
                    object.to_string().replace("\"name\":\"istio-sidecar-injector\"", "\"name\":\"istiod\"");
                *object = serde_json::from_str(
                    &text.replace("service-name\":\"istio-sidecar-injector", "service-name\":\"istiod"),
                )
                .unwrap();
            }
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["clientConfig"]["caBundle"] = encoded(&issued.ca);
            }
        }
        problems(&diagnose(&all, &[]))
    };
    assert_eq!(at(&issued.ca), []);
    assert_eq!(at(&IssuedCert::new(HOST, -10, 80).ca), [Problem::CaMismatch]);
}

/// Saved objects come from anywhere: nothing of them is taken for granted.
#[test]
fn nothing_panics_on_objects_that_are_cut_or_twisted() {
    // Configs are rendered, which takes its time, and have tests of their own.
    let all = without("ConfigMap");
    let twists = [json!(null), json!(7), json!("x"), json!([]), json!({}), json!([null, 7, {"name": 3}])];
    for at in 0..all.len() {
        let mut paths = Vec::new();
        collect(&all[at], &mut String::new(), &mut paths, 6);
        for (number, path) in paths.into_iter().enumerate() {
            for twist in &twists {
                let mut twisted = all[at].clone();
                *twisted.pointer_mut(&path).unwrap() = twist.clone();
                assert!(diagnose(&[twisted], &["shop"]).objects <= 3, "{path}");
            }
            // A whole cluster takes its time: each path with one twist.
            let mut twisted = all.clone();
            *twisted[at].pointer_mut(&path).unwrap() = twists[number % twists.len()].clone();
            let _ = diagnose(&twisted, &[]);
        }
    }
}

fn collect(value: &Value, path: &mut String, paths: &mut Vec<String>, depth: usize) {
    if depth == 0 {
        return;
    }
    let length = path.len();
    let mut visit = |key: &str, value: &Value| {
        path.truncate(length);
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        paths.push(path.clone());
        collect(value, path, paths, depth - 1);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| visit(key, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| visit(&at.to_string(), value)),
        _ => {}
    }
    path.truncate(length);
}

#[test]
fn the_number_of_replicas_is_the_autoscaler_s() {
    // As the manifests are: the API server makes it 1, until the autoscaler has looked.
    for replicas in [json!(1), Value::Null] {
        let mut all = cluster();
        object(&mut all, "Deployment", "istio-sidecar-injector")["spec"]["replicas"] = replicas;
        assert_eq!(problems(&diagnose(&all, &[])), []);
        all.retain(|object| object["kind"] != "HorizontalPodAutoscaler");
        assert_eq!(problems(&diagnose(&all, &[])), [Problem::SingleReplica]);
    }
}
