//! Every request gets a valid response or an error, and every patch yields the injected pod.

use std::sync::LazyLock;

use crate::builtin::{self, deployment, injector};
use crate::reviews::{UID, admission, config_store, patched, response, review, send_bytes, sent};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sidecar_injector::cluster::ClusterState;
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::webhook::admission::{Admission, Request, Response};
use sidecar_injector::webhook::request_error::RequestError;

static ADMISSION: LazyLock<Admission> = LazyLock::new(|| admission(injector()));

/// A response is a review with the uid; an error says why there is none.
fn valid(reviewed: &Result<Response, RequestError>) {
    match reviewed {
        Ok(reviewed) => {
            let response = response(reviewed);
            // The log has it without control characters.
            let uid = response["uid"].as_str().map(|uid| uid.replace(char::is_control, " "));
            assert_eq!(uid.as_ref(), Some(&reviewed.uid));
            assert_ne!(reviewed.uid, "");
            let outcome = reviewed.verdict.outcome();
            assert_eq!(response["allowed"], json!(outcome != "denied"));
            assert_eq!(response.get("status").is_some(), outcome == "denied");
            assert_eq!(response.get("patch").is_some(), outcome == "injected");
            assert_ne!(reviewed.verdict.reason(), "");
            assert_ne!(reviewed.message, "");
        }
        Err(error) => {
            assert!(matches!(error.reason().status(), 400 | 404 | 413 | 415), "{error}");
            assert!(error.to_string().len() > 10);
        }
    }
}

fn reviewed(body: &[u8]) -> Result<Response, RequestError> {
    send_bytes(&ADMISSION, body)
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

pub(crate) fn pods() -> impl Strategy<Value = Value> {
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

fn cluster_states() -> impl Strategy<Value = ClusterState> {
    let ids = prop_oneof![
        Just(Ok(Ids { uid: Some(1_000_629_999), gid: None })),
        Just(Ok(Ids::default())),
        Just(Err("not readable".to_owned())),
    ];
    (any::<bool>(), any::<bool>(), prop::option::of(ids)).prop_map(
        |(native_sidecars, namespaces_required, ids)| ClusterState {
            native_sidecars,
            namespaces: ids.map(|ids| ("shop".to_owned(), ids)).into_iter().collect(),
            namespaces_required,
            ..ClusterState::default()
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_get_a_response(body in prop::collection::vec(any::<u8>(), 0..200), path in "\\PC{0,20}|/inject(/[a-z%/]{0,9})?") {
        valid(&ADMISSION.review(&Request { path: &path, content_type: Some("application/json"), body: &body }));
    }

    #[test]
    fn broken_reviews_get_a_response(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut body = review(&sent(&deployment())).to_string().into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        valid(&reviewed(&body));
        body.truncate(cut.index(body.len()));
        valid(&reviewed(&body));
    }

    #[test]
    fn odd_reviews_get_a_response(changes in prop::collection::vec((any::<usize>(), any_json()), 1..4)) {
        let mut asked_for = review(&sent(&deployment()));
        for (choice, new) in changes {
            mutate(&mut asked_for, choice, &new);
        }
        let reviewed = reviewed(asked_for.to_string().as_bytes());
        valid(&reviewed);
        if let Ok(reviewed) = reviewed
            && reviewed.verdict.outcome() == "injected"
        {
            patched(&asked_for["request"]["object"], &reviewed);
        }
    }

    #[test]
    fn the_same_request_gets_the_same_response(pod in pods(), state in cluster_states(), path in
        prop::sample::select(vec!["/inject", "/inject/net/a"]))
    {
        let store = config_store(injector());
        store.set_cluster_state(state);
        let admission = Admission::new(store);
        let body = review(&pod).to_string();
        let request = Request { path, content_type: Some("application/json"), body: body.as_bytes() };
        let first = admission.review(&request);
        valid(&first);
        prop_assert_eq!(admission.review(&request), first);
    }

    #[test]
    fn the_patch_yields_the_injected_pod(pod in pods()) {
        let reviewed = reviewed(review(&pod).to_string().as_bytes()).unwrap();
        prop_assert_eq!(reviewed.uid.as_str(), UID);
        if reviewed.verdict.outcome() == "injected" {
            let once = patched(&pod, &reviewed);
            let mut pod = pod;
            pod["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
            let workload = sidecar_injector::pod::workload::Workload::of_pod(&pod, "shop");
            let request = sidecar_injector::inject::Request { pod: &pod, workload: &workload, context: &builtin::native() };
            let mut expected = injector().inject(request).unwrap().pod;
            expected["metadata"]["managedFields"] = once["metadata"]["managedFields"].clone();
            prop_assert_eq!(&once, &expected);
        }
    }
}
