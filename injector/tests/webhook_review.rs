//! What the webhook answers: reviews of both versions, refusals, requests that are none, and pods that come twice.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod builtin;
mod reviews;

use std::path::PathBuf;
use std::sync::Arc;

use builtin::{deployment, injector, with};
use reviews::{
    TOKEN, UID, admission, ask, ask_bytes, live, patched, response, review, sent, sibling, steps,
    surroundings,
};
use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injector, Options, Request, functions};
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::pod::workload::Workload;
use sidecar_injector::webhook::LARGEST_BODY;
use sidecar_injector::webhook::admit::{Admission, Answer, Asked};
use sidecar_injector::webhook::live::Surroundings;
use sidecar_injector::webhook::verdict::Outcome;

/// What the engine makes of the pod, without `managedFields`.
fn injected(pod: &Value) -> Value {
    let pod = unmanaged(pod);
    let workload = Workload::of_pod(&pod, "shop");
    injector().inject(Request { pod: &pod, workload: &workload, place: &builtin::native() }).unwrap().pod
}

fn unmanaged(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
    pod
}

/// A pod with its own settings for the proxy, which mounts the token too.
fn customised() -> Value {
    let mut pod = deployment();
    let own = json!({"name": "istio-proxy", "image": "auto", "env": [{"name": "EXTRA", "value": "1"}]});
    pod["spec"]["containers"].as_array_mut().unwrap().insert(0, own);
    sent(&pod)
}

#[test]
fn both_versions_get_the_injected_pod() {
    for (version, pod) in
        [("v1", sent(&deployment())), ("v1beta1", sent(&deployment())), ("v1", customised())]
    {
        let mut asked = review(&pod);
        asked["apiVersion"] = json!(format!("admission.k8s.io/{version}"));
        let answer = ask(&admission(injector(), 0), &asked);
        assert_eq!((answer.status, answer.content_type), (200, "application/json"));
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["kind"], "AdmissionReview");
        assert_eq!(body["apiVersion"], asked["apiVersion"]);
        let response = response(&answer);
        assert_eq!(response["uid"], UID);
        assert_eq!(response["allowed"], true);
        assert_eq!(response["auditAnnotations"], json!({"decision": "injected", "reason": "policy"}));
        assert_eq!(unmanaged(&patched(&pod, &answer)), injected(&pod));
        assert_eq!(patched(&pod, &answer)["metadata"]["managedFields"], pod["metadata"]["managedFields"]);
        let record = &answer.record;
        assert_eq!((record.outcome, record.reason), (Outcome::Injected, "policy"));
        assert_eq!((record.uid.as_str(), record.namespace.as_str()), (UID, "shop"));
        assert_eq!((record.owner.as_str(), record.cached), ("Deployment/web", false));
    }
}

#[test]
fn the_patch_leaves_what_is_the_user_s_alone() {
    let steps = steps(&ask(&admission(injector(), 0), &review(&sent(&deployment()))));
    let paths: Vec<&str> =
        steps.as_array().unwrap().iter().map(|step| step["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"/spec/initContainers"), "{paths:?}");
    for path in paths {
        assert!(!path.starts_with("/spec/containers") && !path.contains("managedFields"), "{path}");
    }
}

#[test]
fn the_request_s_namespace_counts_and_stays_out_of_the_patch() {
    let mut pod = sent(&deployment());
    let expected = injected(&pod);
    pod["metadata"].as_object_mut().unwrap().shift_remove("namespace");
    let answer = ask(&admission(injector(), 0), &review(&pod));
    let mut patched = unmanaged(&patched(&pod, &answer));
    assert_eq!(patched["metadata"].get("namespace"), None);
    patched["metadata"]["namespace"] = json!("shop");
    assert_eq!(patched, expected);
    let mut asked = review(&sent(&deployment()));
    asked["request"]["namespace"] = json!("kube-system");
    assert_eq!(ask(&admission(injector(), 0), &asked).record.reason, "system-namespace");
    asked["request"].as_object_mut().unwrap().shift_remove("namespace");
    assert_eq!(ask(&admission(injector(), 0), &asked).record.namespace, "shop");
}

#[test]
fn a_pod_that_is_as_it_should_be_gets_no_patch() {
    let admission = admission(injector(), 0);
    let pod = sent(&deployment());
    let once = patched(&pod, &ask(&admission, &review(&pod)));
    let answer = ask(&admission, &review(&once));
    let response = response(&answer);
    assert_eq!((response.get("patch"), response.get("patchType")), (None, None));
    assert_eq!(response["allowed"], true);
    assert_eq!((answer.record.outcome, answer.record.reason), (Outcome::Skipped, "unchanged"));
}

/// What other webhooks do to an injected pod.
fn foreign(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let spec = &mut pod["spec"];
    for container in spec["initContainers"].as_array_mut().unwrap() {
        container.as_object_mut().unwrap().shift_remove("restartPolicy");
        if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
            env.insert(0, json!({"name": "FOREIGN", "value": "1"}));
        }
    }
    spec["initContainers"].as_array_mut().unwrap().reverse();
    spec["initContainers"].as_array_mut().unwrap().insert(1, json!({"name": "fetch", "image": "fetch:1"}));
    spec["containers"].as_array_mut().unwrap().insert(0, json!({"name": "agent", "image": "agent:1"}));
    spec["volumes"].as_array_mut().unwrap().reverse();
    pod
}

#[test]
fn a_second_round_repairs_what_other_webhooks_have_broken() {
    let admission = admission(injector(), 0);
    let f = |pod: &Value| patched(pod, &ask(&admission, &review(pod)));
    for pod in [sent(&deployment()), customised()] {
        let repaired = f(&foreign(&f(&pod)));
        let init = repaired["spec"]["initContainers"].as_array().unwrap();
        let names: Vec<&str> = init.iter().map(|container| container["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["istio-init", "istio-proxy", "fetch"]);
        assert_eq!(init[1]["restartPolicy"], "Always");
        let env = init[1]["env"].as_array().unwrap();
        assert_eq!(env.iter().filter(|variable| variable["name"] == "FOREIGN").count(), 1);
        let apps = repaired["spec"]["containers"].as_array().unwrap();
        assert!(apps.iter().any(|container| container["name"] == "agent"));
        assert!(!apps.iter().any(|container| container["name"] == "istio-proxy"));
        assert_eq!(f(&repaired), repaired);
    }
}

#[test]
fn what_is_no_review_gets_plain_text() {
    let admission = admission(injector(), 0);
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
    let large = " ".repeat(LARGEST_BODY + 1);
    let json = Some("application/json");
    for (path, content_type, body, status, slug) in [
        ("/", json, good.as_bytes(), 404, "path"),
        ("/inject/cluster", json, good.as_bytes(), 400, "environment"),
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
        let answer = admission.answer(&Asked { path, content_type, body });
        let text = String::from_utf8(answer.body).unwrap();
        let seen = (answer.status, answer.record.reason, answer.record.outcome);
        assert_eq!(seen, (status, slug, Outcome::Invalid), "{text}");
        assert_eq!(answer.content_type, "text/plain; charset=utf-8");
        assert!(text.len() > 20 && text.len() < 600 && text.lines().count() == 1, "{text}");
    }
    let asked = Asked {
        path: "/inject",
        content_type: Some("Application/JSON; charset=utf-8"),
        body: good.as_bytes(),
    };
    assert_eq!(admission.answer(&asked).status, 200);
}

#[test]
fn other_requests_pass_untouched() {
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
        let answer = ask(&admission(injector(), 0), &review);
        let response = response(&answer);
        assert_eq!((&response["allowed"], &response["uid"]), (&json!(true), &json!(UID)));
        assert_eq!(response.get("patch"), None);
        assert_eq!((answer.record.outcome, answer.record.reason), (Outcome::Skipped, reason));
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
        let answer = ask(&admission(injector(), 0), &review);
        assert_eq!((answer.record.outcome, answer.record.namespace.as_str()), (Outcome::Injected, "shop"));
    }
}

#[test]
fn long_uids_are_echoed_whole_and_long_names_told_in_short() {
    let (uid, long) = ("ü".repeat(128), "ü".repeat(1 << 18));
    let mut review = review(&sent(&deployment()));
    review["request"]["uid"] = json!(uid);
    review["request"]["namespace"] = json!(long);
    review["request"]["object"]["metadata"]["ownerReferences"][0]["kind"] = json!(long);
    for operation in ["CREATE", &long] {
        review["request"]["operation"] = json!(operation);
        let answer = ask(&admission(injector(), 0), &review);
        assert_eq!(response(&answer)["uid"], uid);
        let record = &answer.record;
        assert_eq!(record.uid, uid);
        assert!(record.namespace.chars().count() < 400 && record.namespace.ends_with("ü..."));
        assert!(record.owner.chars().count() < 400 && record.message.chars().count() < 2100);
    }
}

fn denied(answer: &Answer) -> (u64, String, String) {
    let response = response(answer);
    assert_eq!((&response["allowed"], &response["uid"]), (&json!(false), &json!(UID)));
    assert_eq!(response.get("patch"), None);
    assert_eq!(response["auditAnnotations"], json!({"decision": "denied", "reason": answer.record.reason}));
    assert_eq!(answer.record.outcome, Outcome::Denied);
    let status = &response["status"];
    let text = |key: &str| status[key].as_str().unwrap().to_owned();
    (status["code"].as_u64().unwrap(), text("reason"), text("message"))
}

#[test]
fn bad_pods_are_refused_with_what_to_do() {
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
        let answer = ask(&admission(injector(), 0), &review(&pod));
        let (status, _, message) = denied(&answer);
        assert_eq!((status, answer.record.reason), (code, slug), "{message}");
        assert!(message.starts_with("pod \"shop/web-667dfdc6c7-\" of Deployment web: "), "{message}");
        assert!(message.contains(contains) && message.len() <= 2048, "{message}");
    }
}

#[test]
fn what_is_no_pod_at_all_is_refused() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let good = review(&json!("POD")).to_string();
    for object in ["null", "7", "[]", "\"x\"", deep.as_str()] {
        let answer = ask_bytes(&admission(injector(), 0), good.replace("\"POD\"", object).as_bytes());
        let (code, reason, message) = denied(&answer);
        assert_eq!((code, reason.as_str(), answer.record.reason), (400, "BadRequest", "object"), "{message}");
    }
}

#[test]
fn a_pod_that_is_too_large_is_refused_unread() {
    let ones = vec![1; 50_000];
    let mut pod = sent(&deployment());
    pod["metadata"]["managedFields"] = json!(ones);
    let answer = ask(&admission(injector(), 0), &review(&pod));
    assert_eq!(answer.record.outcome, Outcome::Injected, "managedFields do not count");
    pod["spec"]["unknown"] = json!(ones);
    let answer = ask(&admission(injector(), 0), &review(&pod));
    let (code, reason, message) = denied(&answer);
    assert_eq!((code, reason.as_str()), (413, "RequestEntityTooLarge"));
    assert!(message.contains("more than 50000 values"), "{message}");
}

#[test]
fn rules_and_faults_of_the_config_have_their_own_codes() {
    let mut strict = injector();
    strict.options.reject_proxy_uid = true;
    let mut pod = sent(&deployment());
    pod["spec"]["securityContext"] = json!({"runAsUser": 1337});
    let (code, reason, _) = denied(&ask(&admission(strict, 0), &review(&pod)));
    assert_eq!((code, reason.as_str()), (403, "Forbidden"));
    let broken = with_config(
        "templates: {sidecar: '{{ fail \"no\" }}'}\ndefaultTemplates: [sidecar]\npolicy: enabled",
    );
    let (code, reason, message) = denied(&ask(&admission(broken, 0), &review(&sent(&deployment()))));
    assert_eq!((code, reason.as_str()), (500, "InternalError"), "{message}");
}

fn with_config(text: &str) -> Injector {
    let config = Some(Source { name: "config".to_owned(), text: text.to_owned() });
    let sources = Sources { config, ..Sources::default() };
    Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default())
}

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
fn the_place_comes_from_url_and_surroundings() {
    let namespaces = [
        ("shop".to_owned(), Ok(Ids { uid: Some(1_000_629_999), gid: Some(1_000_639_999) })),
        ("odd".to_owned(), Err("annotation x: not readable".to_owned())),
    ];
    let live = live(injector());
    live.surround(Surroundings { native_sidecars: false, namespaces: namespaces.into(), prescribed: true });
    let admission = Admission::new(live, 1 << 20);
    let pod = sent(&deployment());
    let body = review(&pod).to_string();
    let path = "/inject/cluster/east/net/n--slash--1";
    let answer =
        admission.answer(&Asked { path, content_type: Some("application/json"), body: body.as_bytes() });
    let patched = patched(&pod, &answer);
    let proxy = &patched["spec"]["containers"][1];
    assert_eq!(
        (&proxy["name"], &proxy["securityContext"]["runAsUser"]),
        (&json!("istio-proxy"), &json!(1_000_629_999))
    );
    let env = proxy["env"].as_array().unwrap();
    let value =
        |name: &str| env.iter().find(|variable| variable["name"] == name).map(|one| one["value"].clone());
    assert_eq!(value("ISTIO_META_CLUSTER_ID"), Some(json!("east")));
    assert_eq!(value("ISTIO_META_NETWORK"), Some(json!("n/1")));
    let mut odd = review(&pod);
    odd["request"]["namespace"] = json!("odd");
    let (code, _, message) = denied(&ask(&admission, &odd));
    assert!(code == 422 && message.contains("namespace odd: annotation x: not readable"), "{message}");
    odd["request"]["namespace"] = json!("new");
    let (code, _, message) = denied(&ask(&admission, &odd));
    assert!(code == 503 && message.contains("namespace new has not been heard of yet"), "{message}");
    odd["request"]["object"]["spec"]["hostNetwork"] = json!(true);
    assert_eq!(ask(&admission, &odd).record.outcome, Outcome::Skipped);
}

#[test]
fn pods_of_one_template_are_answered_from_the_cache() {
    let live = live(injector());
    let admission = Admission::new(Arc::clone(&live), 1 << 20);
    for pod in [sent(&deployment()), customised()] {
        assert!(!ask(&admission, &review(&pod)).record.cached);
        let other = sibling(&pod);
        let mut asked = review(&other);
        asked["request"]["uid"] = json!("another");
        let answer = ask(&admission, &asked);
        assert!(answer.record.cached);
        assert_eq!(response(&answer)["uid"], "another");
        let patched = patched(&other, &answer);
        assert_eq!(unmanaged(&patched), injected(&other));
        assert!(!patched.to_string().contains(TOKEN));
    }
    let pod = sent(&deployment());
    let cached = |review: &Value| ask(&admission, review).record.cached;
    assert!(cached(&review(&pod)));
    let mut elsewhere = review(&pod);
    elsewhere["request"]["namespace"] = json!("other");
    assert!(!cached(&elsewhere) && cached(&elsewhere));
    let mut old = review(&pod);
    old["apiVersion"] = json!("admission.k8s.io/v1beta1");
    assert!(cached(&old));
    let body = review(&pod).to_string();
    let at = |path| {
        let asked = Asked { path, content_type: Some("application/json"), body: body.as_bytes() };
        admission.answer(&asked).record.cached
    };
    assert!(!at("/inject/cluster/a") && at("/inject/cluster/a") && !at("/inject/net/a"));
    live.replace(injector());
    assert!(!cached(&review(&pod)) && cached(&review(&pod)));
    live.surround(Surroundings { native_sidecars: false, ..surroundings() });
    assert!(!cached(&review(&pod)));
    live.surround(Surroundings {
        namespaces: [("shop".to_owned(), Ok(Ids::default()))].into(),
        ..surroundings()
    });
    assert!(!cached(&review(&pod)));
    live.surround(surroundings());
    assert!(cached(&review(&pod)));
}

/// The folder with recorded reviews: below `CONFORMANCE_DATA`, or beside this repository.
fn recorded() -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    let folder = std::env::var_os("CONFORMANCE_DATA").map_or_else(beside, PathBuf::from).join("k8s");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("NOT TESTED: {} is not there; CONFORMANCE_DATA names the folder above it", folder.display());
    None
}

#[test]
fn recorded_reviews_are_answered() {
    let Some(folder) = recorded() else { return };
    for (file, owner) in
        [("admissionreview-sample.json", "Pod/hello"), ("admissionreview-deployment.json", "Deployment/dep")]
    {
        let body = std::fs::read(folder.join(file)).unwrap();
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let pod = &asked["request"]["object"];
        let admission = admission(injector(), 1 << 20);
        for cached in [false, true] {
            let answer = ask_bytes(&admission, &body);
            assert_eq!((answer.record.owner.as_str(), answer.record.cached), (owner, cached));
            assert_eq!(response(&answer)["uid"], asked["request"]["uid"]);
            let patched = patched(pod, &answer);
            let expected = {
                let pod = unmanaged(pod);
                let workload = Workload::of_pod(&pod, "demo");
                let request = Request { pod: &pod, workload: &workload, place: &builtin::native() };
                injector().inject(request).unwrap().pod
            };
            assert_eq!(unmanaged(&patched), expected);
        }
    }
}
