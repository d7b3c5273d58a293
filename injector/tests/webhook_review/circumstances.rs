//! What an answer depends on besides the pod, and the cache that knows all of it.

use std::sync::Arc;

use serde_json::{Value, json};
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::webhook::admit::{Admission, Asked};
use sidecar_injector::webhook::live::Surroundings;
use sidecar_injector::webhook::verdict::Outcome;

use crate::builtin::{deployment, injector};
use crate::reviews::{TOKEN, ask, live, patched, response, review, sent, sibling, surroundings};
use crate::{customised, denied, injected, unmanaged};

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
