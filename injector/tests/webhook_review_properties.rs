//! Whatever is asked, there is an answer; and it is the same whether it was given before or not.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod builtin;
mod reviews;

use std::sync::{Arc, LazyLock};

use builtin::{deployment, injector};
use proptest::prelude::*;
use reviews::{UID, ask_bytes, live, patched, response, review, sent, sibling};
use serde_json::{Map, Value, json};
use sidecar_injector::inject::Options;
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::webhook::admit::{Admission, Answer, Asked};
use sidecar_injector::webhook::live::{Live, Surroundings};
use sidecar_injector::webhook::verdict::Outcome;

static UNCACHED: LazyLock<Admission> = LazyLock::new(|| Admission::new(live(injector()), 0));

/// An answer is either a review with the uid, or plain text that says why it is none.
fn valid(answer: &Answer) {
    if answer.status == 200 {
        let response = response(answer);
        assert_eq!(response["uid"], json!(answer.record.uid));
        assert_ne!(answer.record.uid, "");
        let denied = answer.record.outcome == Outcome::Denied;
        assert_eq!(response["allowed"], json!(!denied));
        assert_eq!(response.get("status").is_some(), denied);
        assert_eq!(response.get("patch").is_some(), answer.record.outcome == Outcome::Injected);
    } else {
        assert!(matches!(answer.status, 400 | 404 | 413 | 415), "{}", answer.status);
        assert_eq!(answer.record.outcome, Outcome::Invalid);
        assert!(std::str::from_utf8(&answer.body).unwrap().len() > 10);
    }
    assert_ne!(answer.record.reason, "");
    assert_ne!(answer.record.message, "");
}

fn asked(body: &[u8]) -> Answer {
    ask_bytes(&UNCACHED, body)
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["auto", "true", "istio-proxy", "Always", "kube-api-access-z2z2z"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,4}|name|image|env", inner), 0..3)
                .prop_map(|pairs| pairs.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// Puts a value in place of the one at a place that the number chooses.
fn mutate(value: &mut Value, choice: usize, new: &Value) {
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Object(map) => map.values().map(count).sum(),
            Value::Array(items) => items.iter().map(count).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    fn replace(value: &mut Value, left: &mut usize, new: &Value) {
        if *left == 0 {
            *value = new.clone();
        }
        *left = left.wrapping_sub(1);
        match value {
            Value::Object(map) => map.values_mut().for_each(|value| replace(value, left, new)),
            Value::Array(items) => items.iter_mut().for_each(|value| replace(value, left, new)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut left = choice % count(value);
    replace(value, &mut left, new);
}

fn annotations() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "sidecar.istio.io/inject",
        "sidecar.istio.io/nativeSidecar",
        "sidecar.istio.io/proxyCPU",
        "sidecar.istio.io/interceptionMode",
        "traffic.sidecar.istio.io/includeInboundPorts",
        "status.sidecar.istio.io/port",
        "inject.istio.io/templates",
        "proxy.istio.io/config",
        "note/managedFields",
    ]);
    let value = prop::sample::select(vec![
        "true",
        "false",
        "maybe",
        "50m",
        "TPROXY",
        "NONE",
        "80,90",
        "15020",
        "gateway",
        "concurrency: 2",
        "kube-api-access-nfkgr",
        "kube-api-access-z2z2z",
        "a\"b\nc",
    ]);
    prop::collection::vec((key, value.prop_map(Value::from)), 0..3).prop_map(|pairs| {
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
    })
}

fn pods() -> impl Strategy<Value = Value> {
    let names = prop::sample::subsequence(vec!["web", "istio-proxy", "agent", "kube-api-access-bbbbb"], 0..4);
    (annotations(), names.prop_shuffle(), any::<bool>()).prop_map(|(annotations, names, on_host)| {
        let mut pod = deployment();
        pod["metadata"]["annotations"] = annotations;
        let containers = names.iter().map(|name| json!({"name": name, "image": "auto-or-not:1"}));
        pod["spec"]["containers"] = containers.collect();
        if on_host {
            pod["spec"]["hostNetwork"] = json!(true);
        }
        sent(&pod)
    })
}

fn places() -> impl Strategy<Value = Surroundings> {
    let ids = prop_oneof![
        Just(Ok(Ids { uid: Some(1_000_629_999), gid: None })),
        Just(Ok(Ids::default())),
        Just(Err("not readable".to_owned())),
    ];
    (any::<bool>(), any::<bool>(), prop::option::of(ids)).prop_map(|(native_sidecars, prescribed, ids)| {
        Surroundings {
            native_sidecars,
            namespaces: ids.map(|ids| ("shop".to_owned(), ids)).into_iter().collect(),
            prescribed,
        }
    })
}

/// A pod, its place, the path, and whether another config comes into force before.
type Asks = (Value, Surroundings, &'static str, bool);

fn sequences() -> impl Strategy<Value = Vec<Asks>> {
    let path = prop::sample::select(vec!["/inject", "/inject/net/a", "/inject/net/kube-api-access-z2z2z"]);
    let pod = (pods(), any::<bool>()).prop_map(|(pod, other)| if other { sibling(&pod) } else { pod });
    let all = prop::collection::vec((pod, places(), path, prop::bool::weighted(0.1)), 1..6);
    // Everything twice, so that there is something to find.
    let again = |one: &Asks| (one.0.clone(), one.1.clone(), one.2, false);
    all.prop_map(move |all| all.iter().flat_map(|one| [one.clone(), again(one)]).chain(all.clone()).collect())
}

proptest! {
    #[test]
    fn any_bytes_have_an_answer(body in prop::collection::vec(any::<u8>(), 0..200), path in "\\PC{0,20}|/inject(/[a-z%/]{0,9})?") {
        let answer = UNCACHED.answer(&Asked { path: &path, content_type: Some("application/json"), body: &body });
        valid(&answer);
    }

    #[test]
    fn broken_bytes_have_an_answer(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut body = review(&sent(&deployment())).to_string().into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        valid(&asked(&body));
        body.truncate(cut.index(body.len()));
        valid(&asked(&body));
    }

    #[test]
    fn odd_reviews_have_an_answer(changes in prop::collection::vec((any::<usize>(), any_json()), 1..4)) {
        let mut asked_for = review(&sent(&deployment()));
        for (choice, new) in changes {
            mutate(&mut asked_for, choice, &new);
        }
        let answer = asked(asked_for.to_string().as_bytes());
        valid(&answer);
        if answer.record.outcome == Outcome::Injected {
            patched(&asked_for["request"]["object"], &answer);
        }
    }

    #[test]
    fn a_kept_answer_is_the_one_that_would_be_given(sequence in sequences()) {
        let live: Arc<Live> = live(injector());
        let (cached, uncached) = (Admission::new(Arc::clone(&live), 1 << 20), Admission::new(Arc::clone(&live), 0));
        let mut hits = 0;
        for (pod, surroundings, path, replace) in sequence {
            if replace {
                let mut other = injector();
                other.options = Options { revision: "canary".to_owned(), ..Options::default() };
                live.replace(other);
            }
            live.surround(surroundings);
            let body = review(&pod).to_string();
            let asked = Asked { path, content_type: Some("application/json"), body: body.as_bytes() };
            let (mut one, other) = (cached.answer(&asked), uncached.answer(&asked));
            valid(&other);
            hits += usize::from(one.record.cached);
            one.record.cached = false;
            prop_assert_eq!(one, other);
        }
        prop_assert!(hits > 0);
    }

    #[test]
    fn the_patch_makes_what_the_engine_makes(pod in pods()) {
        let answer = asked(review(&pod).to_string().as_bytes());
        prop_assert_eq!(answer.record.uid.as_str(), UID);
        if answer.record.outcome == Outcome::Injected {
            let once = patched(&pod, &answer);
            let mut pod = pod;
            pod["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
            let workload = sidecar_injector::pod::workload::Workload::of_pod(&pod, "shop");
            let request = sidecar_injector::inject::Request { pod: &pod, workload: &workload, place: &builtin::native() };
            let mut expected = injector().inject(request).unwrap().pod;
            expected["metadata"]["managedFields"] = once["metadata"]["managedFields"].clone();
            prop_assert_eq!(&once, &expected);
        }
    }
}
