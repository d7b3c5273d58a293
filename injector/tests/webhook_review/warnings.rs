//! What is said beside an answer.

use serde_json::{Value, json};

use crate::builtin::{deployment, injector, with};
use crate::reviews::{admission, ask, response, review, sent};
use crate::with_config;

#[test]
fn what_nobody_expects_is_said() {
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
        let answer = ask(&admission(injector, 0), &asked);
        let response = response(&answer);
        assert_eq!((&response["allowed"], answer.record.reason), (&json!(true), reason));
        let said: Vec<&str> =
            response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match warned {
            Some(text) => assert!(said.len() == 1 && said[0].contains(text), "{said:?}"),
            None => assert_eq!(said, [""; 0]),
        }
        assert_eq!(response["auditAnnotations"]["reason"], reason);
    }
}

#[test]
fn many_warnings_fit_into_what_the_api_server_takes() {
    let unknown = (0..500).map(|n| (format!("sidecar.istio.io/no{n}{}", "o".repeat(180)), json!("x\ny")));
    let pod = sent(&with(&deployment(), &Value::Object(unknown.collect())));
    let response = response(&ask(&admission(injector(), 0), &review(&pod)));
    let said: Vec<&str> =
        response["warnings"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(said.len() > 3 && said.iter().map(|text| text.chars().count()).sum::<usize>() <= 4096);
    assert!(said.iter().all(|text| !text.contains('\n')) && said.last().unwrap().contains("more warnings"));
}

#[test]
fn capture_without_a_proxy_is_said() {
    let config = |spec: &str| {
        with_config(&format!(
            "policy: enabled\ntemplates: {{sidecar: 'spec: {spec}'}}\ndefaultTemplates: [sidecar]"
        ))
    };
    let init = "{initContainers: [{name: istio-init, image: x}]";
    let pod = sent(&deployment());
    let said = |spec: String| {
        let response = response(&ask(&admission(config(&spec), 0), &review(&pod)));
        response["warnings"].to_string().contains("what is captured has nowhere to go")
    };
    assert!(said(format!("{init}}}")));
    assert!(!said(format!("{init}, containers: [{{name: istio-proxy, image: x}}]}}")));
}
