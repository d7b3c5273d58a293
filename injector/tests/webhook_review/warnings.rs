//! Warnings beside a verdict.

use serde_json::{Value, json};

use super::with_config;
use crate::builtin::{deployment, injector, with};
use crate::reviews::{admission, response, review, send, sent};

#[test]
fn an_unexpected_verdict_gets_a_warning() {
    let unknown = "policy: sometimes\ntemplates: {sidecar: 'spec: {}'}\ndefaultTemplates: [sidecar]";
    let host = |inject: &str| {
        let mut pod = with(&deployment(), &json!({"sidecar.istio.io/inject": inject}));
        pod["spec"]["hostNetwork"] = json!(true);
        sent(&pod)
    };
    let asks = |value: &str| sent(&with(&deployment(), &json!({"sidecar.istio.io/inject": value})));
    for (injector, pod, namespace, reason, warned) in [
        (injector(), host("true"), "shop", "host-network", Some("not injected: spec.hostNetwork")),
        (injector(), host("maybe"), "shop", "host-network", None),
        (injector(), asks("true"), "kube-system", "system-namespace", Some("namespace kube-system")),
        (injector(), asks("false"), "shop", "pod", None),
        (injector(), asks("no"), "shop", "policy", Some("ignored")),
        (with_config(unknown), asks("true"), "shop", "unknown-policy", Some("\"sometimes\"")),
    ] {
        let mut asked = review(&pod);
        asked["request"]["namespace"] = json!(namespace);
        let answer = send(&admission(injector), &asked);
        let response = response(&answer);
        assert_eq!((&response["allowed"], answer.verdict.reason()), (&json!(true), reason));
        let found: Vec<&str> =
            response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match warned {
            Some(text) => assert!(found.len() == 1 && found[0].contains(text), "{found:?}"),
            None => assert_eq!(found, [""; 0]),
        }
        assert_eq!(response["auditAnnotations"]["reason"], reason);
    }
}

#[test]
fn many_warnings_fit_the_limit_of_the_api_server() {
    let unknown = (0..500).map(|n| (format!("sidecar.istio.io/no{n}{}", "o".repeat(180)), json!("x\ny")));
    let pod = sent(&with(&deployment(), &Value::Object(unknown.collect())));
    let response = response(&send(&admission(injector()), &review(&pod)));
    let found: Vec<&str> =
        response["warnings"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(found.len() > 3 && found.iter().map(|text| text.chars().count()).sum::<usize>() <= 4096);
    assert!(found.iter().all(|text| !text.contains('\n')) && found.last().unwrap().contains("more warnings"));
}

#[test]
fn capture_without_a_proxy_gets_a_warning() {
    let config = |spec: &str| {
        with_config(&format!(
            "policy: enabled\ntemplates: {{sidecar: 'spec: {spec}'}}\ndefaultTemplates: [sidecar]"
        ))
    };
    let init = "{initContainers: [{name: istio-init, image: x}]";
    let pod = sent(&deployment());
    let found = |spec: String| {
        let response = response(&send(&admission(config(&spec)), &review(&pod)));
        response["warnings"].to_string().contains("what is captured has no destination")
    };
    assert!(found(format!("{init}}}")));
    assert!(!found(format!("{init}, containers: [{{name: istio-proxy, image: x}}]}}")));
}
