use serde_json::{Map, Value, json};

use super::*;

fn rules(policy: &str) -> Rules {
    Rules { policy: Policy::parse(policy), never: Vec::new(), always: Vec::new() }
}

#[test]
fn the_first_answer_wins() {
    let pod = json!({
        "metadata": {"labels": {INJECT: "true"}, "annotations": {INJECT: "false"}}, "spec": {"hostNetwork": true},
    });
    let decision = decide(&pod, "kube-system", &rules("nonsense"));
    assert_eq!(decision.reason().map(|step| step.reason), Some(Reason::HostNetwork));
    let pod = json!({"metadata": pod["metadata"], "spec": {}});
    let reason = |namespace: &str, policy: &str| {
        let decision = decide(&pod, namespace, &rules(policy));
        (decision.reason().unwrap().reason, decision.inject())
    };
    assert_eq!(reason("kube-system", "nonsense"), (Reason::SystemNamespace, false));
    assert_eq!(reason("default", "nonsense"), (Reason::UnknownPolicy, false));
    assert_eq!(reason("default", "disabled"), (Reason::Pod, true));
}

#[test]
fn an_empty_answer_is_silent_and_a_bad_one_is_not() {
    let pod = |value: &str| json!({"metadata": {"annotations": {INJECT: value}}});
    assert!(decide(&pod(""), "", &rules("enabled")).warnings.is_empty());
    let odd = decide(&pod("yes"), "", &rules("enabled"));
    assert!(odd.inject());
    assert_eq!(odd.warnings.len(), 1);
    assert!(
        odd.warnings[0].contains("\"yes\"") && odd.warnings[0].contains("\"true\""),
        "{:?}",
        odd.warnings
    );
}

#[test]
fn an_empty_selector_matches_nothing() {
    let rules = Rules {
        policy: Policy::Disabled,
        never: vec![Selector::default()],
        always: vec![Selector::default()],
    };
    let decision = decide(&json!({}), "", &rules);
    assert_eq!(decision.reason().unwrap().reason, Reason::Policy);
    assert_eq!(decision.to_string(), "not injected: policy of the injector config is disabled");
    assert_eq!(decision.steps.len(), 6);
}

/// Namespace labels, pod labels, enabled by default, the revision whose webhook is called. Labels as `key=value,...`.
type Row = (&'static str, &'static str, bool, Option<&'static str>);

const ROWS: [Row; 15] = [
    ("istio-injection=enabled", "", false, Some("default")),
    ("istio-injection=enabled", "sidecar.istio.io/inject=false", false, None),
    ("istio-injection=enabled", "sidecar.istio.io/inject=true", false, Some("default")),
    ("istio-injection=disabled", "", true, None),
    ("istio-injection=disabled", "sidecar.istio.io/inject=true", true, None),
    ("", "sidecar.istio.io/inject=true", false, Some("default")),
    ("", "", false, None),
    ("", "", true, Some("default")),
    ("", "sidecar.istio.io/inject=false", true, None),
    ("kubernetes.io/metadata.name=kube-system", "", true, None),
    ("istio.io/rev=canary", "", false, Some("canary")),
    ("istio.io/rev=canary", "istio.io/rev=other", false, Some("canary")),
    ("", "istio.io/rev=canary", false, Some("canary")),
    ("istio-injection=enabled,istio.io/rev=canary", "", false, Some("default")),
    ("istio.io/rev=canary", "sidecar.istio.io/inject=false", false, None),
];

fn labels(text: &str) -> Map<String, Value> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

#[test]
fn the_table_of_namespace_and_pod_labels() {
    for (namespace, pod, by_default, expected) in ROWS {
        let mut webhooks = Webhooks::of_revision("", by_default).unwrap();
        webhooks.all.extend(Webhooks::of_revision("canary", false).unwrap().all);
        let called = match webhooks.called(&labels(namespace), &labels(pod)) {
            Called::By(webhook) => webhook.revision,
            Called::ByNone(kept) => {
                assert!(kept.iter().all(|(_, unmet)| !unmet.is_empty()));
                None
            }
        };
        assert_eq!(called.as_deref(), expected, "namespace {namespace}, pod {pod}, by default {by_default}");
    }
}

#[test]
fn webhooks_are_read_from_lists_and_others_are_passed_over() {
    let configuration = json!({
        "kind": "MutatingWebhookConfiguration", "metadata": {"name": "c"},
        "webhooks": [
            {"name": "pods", "rules": [{"resources": ["pods"]}]}, {"name": "others", "rules": [{"resources": ["secrets"]}]},
        ],
    });
    let list = json!({"kind": "List", "items": [configuration, {"kind": "ConfigMap"}]});
    let webhooks = Webhooks::parse(&[list]).unwrap();
    assert_eq!(webhooks.all.iter().map(|webhook| webhook.name.as_str()).collect::<Vec<_>>(), ["pods"]);
    let broken = json!({
        "kind": "MutatingWebhookConfiguration", "metadata": {"name": "c"},
        "webhooks": [{"name": "w", "objectSelector": {"matchExpressions": [{"key": "k", "operator": "?"}]}}],
    });
    let error = Webhooks::parse(&[broken]).unwrap_err();
    assert!(error.starts_with("c, webhook w, objectSelector: "), "{error}");
}
