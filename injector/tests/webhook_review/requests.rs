//! Requests that are not a review, or not about the creation of a pod.

use serde_json::{Value, json};
use sidecar_injector::webhook::admission::Request;
use sidecar_injector::webhook::pod_object::MAX_BODY_BYTES;

use crate::builtin::{deployment, injector};
use crate::reviews::{UID, admission, response, review, send, sent};

#[test]
fn invalid_requests_get_an_error() {
    let admission = admission(injector());
    let good = review(&sent(&deployment())).to_string();
    let without = |key: &str| {
        let mut review = review(&sent(&deployment()));
        review["request"].as_object_mut().unwrap().shift_remove(key);
        review.to_string()
    };
    let with = |pointer: &str, value: Value| {
        let mut review = review(&sent(&deployment()));
        *review.pointer_mut(pointer).unwrap() = value;
        review.to_string()
    };
    let large = " ".repeat(MAX_BODY_BYTES + 1);
    let json = Some("application/json");
    for (path, content_type, body, status, slug) in [
        ("/", json, good.as_bytes(), 404, "path"),
        ("/inject/1a/b", json, good.as_bytes(), 400, "environment"),
        ("/inject", None, good.as_bytes(), 415, "content-type"),
        ("/inject", Some("text/yaml"), good.as_bytes(), 415, "content-type"),
        ("/inject", Some("application/jsonp"), good.as_bytes(), 415, "content-type"),
        ("/inject", json, b"", 400, "empty"),
        ("/inject", json, large.as_bytes(), 413, "too-large"),
        ("/inject", json, &good.as_bytes()[..good.len() - 5], 400, "json"),
        ("/inject", json, b"kind: AdmissionReview", 400, "json"),
        ("/inject", json, b"{\"kind\": \"\xff\"}", 400, "utf-8"),
        ("/inject", json, b"7", 400, "not-a-review"),
        ("/inject", json, b"{}", 400, "not-a-review"),
        ("/inject", json, br#"["admission.k8s.io/v1","AdmissionReview",{"uid":"a"}]"#, 400, "not-a-review"),
        ("/inject", json, good.replace("AdmissionReview", "Pod").as_bytes(), 400, "not-a-review"),
        ("/inject", json, good.replace(&format!("\"{UID}\""), "5").as_bytes(), 400, "not-a-review"),
        ("/inject", json, good.replace("k8s.io/v1\"", "k8s.io/v2\"").as_bytes(), 400, "version"),
        ("/inject", json, good.replace("\"request\"", "\"asked\"").as_bytes(), 400, "no-request"),
        ("/inject", json, without("uid").as_bytes(), 400, "no-uid"),
        ("/inject", json, with("/request/uid", json!(null)).as_bytes(), 400, "no-uid"),
        ("/inject", json, with("/request/uid", json!("u".repeat(257))).as_bytes(), 400, "long-uid"),
        ("/inject", json, with("/request/uid", json!("ü".repeat(1 << 20))).as_bytes(), 400, "long-uid"),
        ("/inject", json, with("/request", json!(null)).as_bytes(), 400, "no-request"),
        ("/inject", json, with("/request", json!([UID])).as_bytes(), 400, "not-a-review"),
        ("/inject", json, with("/request/kind", json!(["", "Pod"])).as_bytes(), 400, "not-a-review"),
        ("/inject", json, with("/request/resource", json!(["", "pods"])).as_bytes(), 400, "not-a-review"),
        ("/inject", json, with("/kind", json!("K".repeat(1 << 20))).as_bytes(), 400, "not-a-review"),
        ("/inject", json, with("/apiVersion", json!("\n".repeat(1 << 20))).as_bytes(), 400, "version"),
        ("/inject", json, b"null", 400, "not-a-review"),
        ("/inject", json, b"{} {}", 400, "json"),
        ("/inject", json, "[".repeat(1 << 20).as_bytes(), 400, "not-a-review"),
    ] {
        let error = admission.review(&Request { path, content_type, body }).unwrap_err();
        let text = error.to_string();
        assert_eq!((error.reason().status(), error.reason().slug()), (status, slug), "{text}");
        assert!(text.len() > 20 && text.len() < 600 && text.lines().count() == 1, "{text}");
    }
    let request = Request {
        path: "/inject",
        content_type: Some("Application/JSON; charset=utf-8"),
        body: good.as_bytes(),
    };
    assert!(admission.review(&request).is_ok());
}

#[test]
fn other_requests_are_allowed_unchanged() {
    let pod = sent(&deployment());
    let mut asked: Vec<(Value, &str)> = Vec::new();
    for (pointer, value, reason) in [
        ("/request/operation", json!("UPDATE"), "operation"),
        ("/request/operation", json!("DELETE"), "operation"),
        ("/request/subResource", json!("ephemeralcontainers"), "subresource"),
        ("/request/resource/resource", json!("deployments"), "not-a-pod"),
        ("/request/resource/group", json!("example.com"), "not-a-pod"),
        ("/request/kind/kind", json!("Deployment"), "not-a-pod"),
        ("/request/kind/group", json!("example.com"), "not-a-pod"),
        ("/request/object/kind", json!("PodTemplate"), "not-a-pod"),
    ] {
        let mut review = review(&pod);
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        review.pointer_mut(parent).unwrap()[key] = value;
        asked.push((review, reason));
    }
    for (review, reason) in asked {
        let answer = send(&admission(injector()), &review);
        let response = response(&answer);
        assert_eq!((&response["allowed"], &response["uid"]), (&json!(true), &json!(UID)));
        assert_eq!(response.get("patch"), None);
        assert_eq!((answer.verdict.outcome(), answer.verdict.reason()), ("skipped", reason));
    }
    let (mut bare, mut null) = (review(&pod), review(&pod));
    for key in ["kind", "resource", "subResource", "operation"] {
        bare["request"].as_object_mut().unwrap().shift_remove(key);
        null["request"][key] = Value::Null;
    }
    let mut null_parts = review(&pod);
    for pointer in
        ["/request/kind/group", "/request/kind/kind", "/request/resource/group", "/request/namespace"]
    {
        *null_parts.pointer_mut(pointer).unwrap() = Value::Null;
    }
    for review in [bare, null, null_parts] {
        let answer = send(&admission(injector()), &review);
        assert_eq!((answer.verdict.outcome(), answer.namespace.as_str()), ("injected", "shop"));
    }
}

#[test]
fn long_uids_are_returned_whole_and_long_names_cut() {
    let (uid, long) = ("ü".repeat(128), "ü".repeat(1 << 18));
    let mut review = review(&sent(&deployment()));
    review["request"]["uid"] = json!(uid);
    review["request"]["namespace"] = json!(long);
    review["request"]["object"]["metadata"]["ownerReferences"][0]["kind"] = json!(long);
    for operation in ["CREATE", &long] {
        review["request"]["operation"] = json!(operation);
        let answer = send(&admission(injector()), &review);
        assert_eq!(response(&answer)["uid"], uid);
        assert_eq!(answer.uid, uid);
        assert!(answer.namespace.chars().count() < 400 && answer.namespace.ends_with("ü..."));
        assert!(answer.owner.chars().count() < 400 && answer.message.chars().count() < 2100);
    }
}
