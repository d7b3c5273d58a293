//! Denied pods.

use serde_json::{Value, json};

use super::{denied, with_config};
use crate::builtin::{deployment, injector, with};
use crate::reviews::{admission, review, send, send_bytes, sent};

#[test]
fn invalid_pods_are_denied_with_the_reason() {
    let annotated = |annotations: Value| sent(&with(&deployment(), &annotations));
    let mut malformed = sent(&deployment());
    malformed["spec"]["containers"][0]["env"] = json!({});
    let mut auto = sent(&deployment());
    auto["spec"]["containers"][0]["image"] = json!("auto");
    let port = "status.sidecar.istio.io/port";
    for (pod, code, slug, contains) in [
        (annotated(json!({ port: "x" })), 422, "annotations", port),
        (annotated(json!({ port: "x".repeat(200_000) })), 422, "annotations", port),
        (annotated(json!({"inject.istio.io/templates": "nope"})), 422, "unknown-template", "sidecar"),
        (malformed, 422, "malformed", "spec.containers[0].env"),
        (auto, 422, "auto-image", "container web"),
    ] {
        let answer = send(&admission(injector()), &review(&pod));
        let (status, _, message) = denied(&answer);
        assert_eq!((status, answer.verdict.reason()), (code, slug), "{message}");
        assert!(message.starts_with("pod \"shop/web-667dfdc6c7-\" of Deployment web: "), "{message}");
        assert!(message.contains(contains) && message.len() <= 2048, "{message}");
    }
}

#[test]
fn objects_that_are_not_a_pod_are_denied() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let good = review(&json!("POD")).to_string();
    for object in ["null", "7", "[]", "\"x\"", deep.as_str()] {
        let answer = send_bytes(&admission(injector()), good.replace("\"POD\"", object).as_bytes()).unwrap();
        let (code, reason, message) = denied(&answer);
        assert_eq!(
            (code, reason.as_str(), answer.verdict.reason()),
            (400, "BadRequest", "object"),
            "{message}"
        );
    }
}

#[test]
fn a_pod_that_is_too_large_is_denied_unparsed() {
    let ones = vec![1; 50_000];
    let mut pod = sent(&deployment());
    pod["metadata"]["managedFields"] = json!(ones);
    let answer = send(&admission(injector()), &review(&pod));
    assert_eq!(answer.verdict.outcome(), "injected", "managedFields do not count");
    pod["spec"]["unknown"] = json!(ones);
    let answer = send(&admission(injector()), &review(&pod));
    let (code, reason, message) = denied(&answer);
    assert_eq!((code, reason.as_str()), (413, "RequestEntityTooLarge"));
    assert!(message.contains("at most 50000 values"), "{message}");
}

#[test]
fn denials_by_rules_and_by_broken_configs_have_their_own_codes() {
    let mut strict = injector();
    strict.options.reject_proxy_uid = true;
    let mut pod = sent(&deployment());
    pod["spec"]["securityContext"] = json!({"runAsUser": 1337});
    let (code, reason, _) = denied(&send(&admission(strict), &review(&pod)));
    assert_eq!((code, reason.as_str()), (403, "Forbidden"));
    let broken = with_config(
        "templates: {sidecar: '{{ fail \"no\" }}'}\ndefaultTemplates: [sidecar]\npolicy: enabled",
    );
    let (code, reason, message) = denied(&send(&admission(broken), &review(&sent(&deployment()))));
    assert_eq!((code, reason.as_str()), (500, "InternalError"), "{message}");
}
