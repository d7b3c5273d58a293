use serde_json::json;

use super::*;

fn rules(policy: &str) -> Rules {
    Rules { policy: Policy::parse(policy), never: Vec::new(), always: Vec::new() }
}

#[test]
fn the_first_decision_wins() {
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
fn copies_of_static_pods_are_not_injected() {
    let pod = json!({"metadata": {"labels": {INJECT: "true"}, "annotations": {"kubernetes.io/config.mirror": "5f2a"}}});
    let decision = decide(&pod, "shop", &rules("enabled"));
    assert_eq!((decision.reason().unwrap().reason, decision.inject()), (Reason::StaticPod, false));
}

#[test]
fn empty_value_is_silent_and_a_bad_one_is_not() {
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
fn misspelt_keys_get_a_hint() {
    for key in ["istio.io/inject", "sidecar.istio.io.inject"] {
        for (map, word) in [("labels", "label"), ("annotations", "annotation")] {
            let decision = decide(&json!({"metadata": {map: {key: "true"}}}), "", &rules("disabled"));
            let expected = format!("{word} {key} has no effect: expected label sidecar.istio.io/inject");
            assert_eq!((decision.inject(), decision.warnings), (false, vec![expected]));
        }
    }
}

#[test]
fn empty_selector_matches_nothing() {
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

#[test]
fn webhooks_are_read_from_lists_and_others_are_passed_over() {
    let configuration = json!({
        "kind": "MutatingWebhookConfiguration", "metadata": {"name": "c"},
        "webhooks": [
            {"name": "pods.sidecar-injector.istio.io", "rules": [{"resources": ["pods"]}]},
            {"name": "others.sidecar-injector.istio.io", "rules": [{"resources": ["secrets"]}]},
            {"name": "vpa.k8s.io", "rules": [{"resources": ["pods"]}], "objectSelector": {"matchExpressions": 7}},
        ],
    });
    let list = json!({"kind": "List", "items": [configuration, {"kind": "ConfigMap"}]});
    let webhooks = Webhooks::parse(&[list]).unwrap();
    assert_eq!(
        webhooks.all.iter().map(|webhook| webhook.name.as_str()).collect::<Vec<_>>(),
        ["pods.sidecar-injector.istio.io"]
    );
    let broken = json!({
        "kind": "MutatingWebhookConfiguration", "metadata": {"name": "c"},
        "webhooks": [{"name": "w.sidecar-injector.istio.io", "objectSelector": {"matchExpressions": [{"key": "k", "operator": "?"}]}}],
    });
    let error = Webhooks::parse(&[broken]).unwrap_err();
    assert!(error.starts_with("c, webhook w.sidecar-injector.istio.io, objectSelector: "), "{error}");
}
