//! The rules, by example.

#![allow(clippy::needless_pass_by_value, reason = "examples read better without borrows")]

use serde_json::{Value, json};

use super::*;
use crate::schema;

fn pod(spec: Value) -> Value {
    json!({"spec": spec})
}

fn spec(original: Value, patch: Value) -> Value {
    merge(&pod(original), &pod(patch), &schema::POD).expect("a merge")["spec"].take()
}

fn container(original: Value, patch: Value) -> Value {
    merge(&original, &patch, &schema::CONTAINER).expect("a merge")
}

/// The merge keys that the recording lacks.
#[test]
fn merge_keys_of_other_lists() {
    for (list, key) in [
        ("ephemeralContainers", "name"),
        ("resourceClaims", "name"),
        ("schedulingGates", "name"),
        ("containers/volumeDevices", "devicePath"),
    ] {
        let nested = |items: Value| match list.split_once('/') {
            Some((outer, inner)) => json!({outer: [{"name": "a", inner: items}]}),
            None => json!({list: items}),
        };
        let old = nested(json!([{key: "a", "x": 1}, {key: "b", "x": 2}]));
        let merged = spec(old, nested(json!([{key: "b", "y": 3}])));
        assert_eq!(merged, nested(json!([{key: "a", "x": 1}, {key: "b", "x": 2, "y": 3}])), "{list}");
    }
}

#[test]
fn lists_without_a_key_are_replaced() {
    for (field, old, new) in [
        ("containers", json!([{"name": "a", "command": ["a"]}]), json!([{"name": "a", "command": ["b"]}])),
        ("containers", json!([{"name": "a", "envFrom": [1]}]), json!([{"name": "a", "envFrom": [2]}])),
        ("securityContext", json!({"sysctls": [{"name": "a"}]}), json!({"sysctls": [{"name": "b"}]})),
        (
            "volumes",
            json!([{"name": "v", "downwardAPI": {"items": [1]}}]),
            json!([{"name": "v", "downwardAPI": {"items": [2]}}]),
        ),
        (
            "volumes",
            json!([{"name": "v", "projected": {"sources": [1]}}]),
            json!([{"name": "v", "projected": {"sources": [2]}}]),
        ),
    ] {
        assert_eq!(spec(json!({field: old}), json!({field: new}))[field], new, "{field}");
    }
}

#[test]
fn missing_merge_key_is_an_error_with_its_place() {
    let error = merge(
        &pod(json!({"containers": [{"name": "app", "env": [{"name": "A"}]}]})),
        &pod(json!({"containers": [{"name": "app", "env": [{"name": "B"}, {"value": "1"}]}]})),
        &schema::POD,
    )
    .expect_err("no name");
    assert_eq!(error.path, "spec.containers[0].env[1]");
    assert!(error.to_string().contains("does not contain declared merge key: name"), "{error}");

    let original = pod(json!({"volumes": [{"emptyDir": {}}]}));
    let error =
        merge(&original, &pod(json!({"volumes": [{"name": "v"}]})), &schema::POD).expect_err("no name");
    assert!(matches!(error.problem, Problem::NoMergeKey { key: "name", in_patch: false, .. }), "{error:?}");
}

#[test]
fn directives_that_only_we_take() {
    let old = json!({"securityContext": {"runAsUser": 1}, "env": [{"name": "A"}, {"name": "B"}]});
    for (patch, merged) in [
        (json!({"securityContext": {"$patch": "replace", "runAsGroup": 2}}), json!({"runAsGroup": 2})),
        (
            json!({"securityContext": {"$patch": "merge", "runAsGroup": 2}}),
            json!({"runAsUser": 1, "runAsGroup": 2}),
        ),
        (
            json!({"env": [{"name": "B", "$patch": "merge", "value": "1"}]}),
            json!([{"name": "A"}, {"name": "B", "value": "1"}]),
        ),
    ] {
        let field = if patch.get("env").is_some() { "env" } else { "securityContext" };
        assert_eq!(container(old.clone(), patch)[field], merged);
    }
}

#[test]
fn bad_directives_are_reported() {
    for (patch, expected) in [
        (
            json!({"securityContext": {"$patch": "drop"}}),
            "securityContext: unknown patch directive $patch: \"drop\"; expected replace, delete or merge",
        ),
        (
            json!({"$retainKeys": ["name"], "image": "i"}),
            "the object: the patch sets \"image\", which its $retainKeys does not list",
        ),
        (json!({"$retainKeys": 7}), "the object: $retainKeys expects a list, found number"),
        (
            json!({"env": [{"$patch": "delete"}]}),
            "env[0]: map: {\"$patch\":\"delete\"} does not contain declared merge key: name (in the patch)",
        ),
        (
            json!({"env": [{"name": "M"}, {"name": "N"}], "$setElementOrder/env": [{"name": "N"}, {"name": "M"}]}),
            "env: the order of env does not match $setElementOrder/env",
        ),
    ] {
        let original = json!({"securityContext": {}, "env": [{"name": "A"}]});
        let error = merge(&original, &patch, &schema::CONTAINER).expect_err("a bad directive");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn unknown_fields_of_a_users_pod_survive() {
    let old = json!({"containers": [{"name": "a", "futureField": {"x": [1]}}], "futureList": [1, 2]});
    let merged = spec(old, json!({"containers": [{"name": "a", "image": "i"}]}));
    assert_eq!(merged["containers"][0]["futureField"], json!({"x": [1]}));
    assert_eq!(merged["futureList"], json!([1, 2]));
}

/// `tests/oracle/merges.json` was recorded with `kubectl patch --local`.
#[test]
fn recorded_merges_of_kubernetes() {
    let recorded: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/oracle/merges.json")).expect("the recording");
    assert!(recorded.len() > 100, "{}", recorded.len());
    for case in &recorded {
        let ours = merge(&case["original"], &case["patch"], &schema::POD);
        match case.get("merged") {
            Some(expected) => {
                let mut expected = expected.clone();
                let stays = directive::settle(&mut expected, &Path::root()).expect("settled");
                assert_eq!(
                    ours.ok(),
                    stays.then_some(expected),
                    "{} over {}",
                    case["patch"],
                    case["original"]
                );
            }
            None => assert!(ours.is_err(), "{}: {} over {}", case["error"], case["patch"], case["original"]),
        }
    }
}
