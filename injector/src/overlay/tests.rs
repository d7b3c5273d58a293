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

fn texts(list: &Value, field: &str) -> Vec<String> {
    list.as_array().expect("a list").iter().map(|item| item[field].to_string().replace('"', "")).collect()
}

fn named(names: &str) -> Value {
    names.split_whitespace().map(|name| json!({"name": name})).collect()
}

#[test]
fn module_example() {
    let pod = json!({"spec": {"containers": [{"name": "app", "image": "a"}]}});
    let patch = json!({"spec": {"containers": [{"name": "app", "image": "b"}, {"name": "proxy"}]}});
    let merged = merge(&pod, &patch, &schema::POD).expect("a merge");
    assert_eq!(merged["spec"]["containers"], json!([{"name": "app", "image": "b"}, {"name": "proxy"}]));
}

#[test]
fn patch_items_come_in_their_order_and_others_before_what_followed_them() {
    let merged = container(json!({"env": named("A B C")}), json!({"env": named("B NEW")}));
    assert_eq!(texts(&merged["env"], "name"), ["A", "B", "NEW", "C"]);

    let mounts = |paths: &str| -> Value { paths.split(' ').map(|p| json!({"mountPath": p})).collect() };
    let merged = container(
        json!({"volumeMounts": mounts("/data /logs")}),
        json!({"volumeMounts": mounts("/data /new")}),
    );
    assert_eq!(texts(&merged["volumeMounts"], "mountPath"), ["/data", "/new", "/logs"]);

    let merged = spec(json!({"volumes": named("mine yours")}), json!({"volumes": named("template certs")}));
    assert_eq!(texts(&merged["volumes"], "name"), ["template", "certs", "mine", "yours"]);

    let merged = container(json!({"env": named("A B C D")}), json!({"env": named("D B")}));
    assert_eq!(texts(&merged["env"], "name"), ["A", "C", "D", "B"]);
}

#[test]
fn every_merge_key_of_a_pod() {
    for (list, key, one, other) in [
        ("containers", "name", json!("a"), json!("b")),
        ("initContainers", "name", json!("a"), json!("b")),
        ("ephemeralContainers", "name", json!("a"), json!("b")),
        ("volumes", "name", json!("a"), json!("b")),
        ("imagePullSecrets", "name", json!("a"), json!("b")),
        ("schedulingGates", "name", json!("a"), json!("b")),
        ("resourceClaims", "name", json!("a"), json!("b")),
        ("hostAliases", "ip", json!("10.0.0.1"), json!("10.0.0.2")),
        ("topologySpreadConstraints", "topologyKey", json!("zone"), json!("host")),
    ] {
        let merged = spec(
            json!({list: [{key: one, "x": 1}, {key: other, "x": 2}]}),
            json!({list: [{key: other, "y": 3}]}),
        );
        assert_eq!(
            merged[list],
            json!([{key: one, "x": 1}, {key: other, "x": 2, "y": 3}]),
            "{list} by {key}"
        );
    }
    for (list, key, one) in [
        ("env", "name", json!("A")),
        ("volumeMounts", "mountPath", json!("/a")),
        ("volumeDevices", "devicePath", json!("/dev/a")),
        ("ports", "containerPort", json!(80)),
    ] {
        let merged = container(json!({list: [{key: one, "x": 1}]}), json!({list: [{key: one, "y": 2}]}));
        assert_eq!(merged[list], json!([{key: one, "x": 1, "y": 2}]), "{list} by {key}");
    }
}

#[test]
fn ports_merge_by_number_alone() {
    let merged = container(
        json!({"ports": [{"containerPort": 80, "protocol": "TCP"}]}),
        json!({"ports": [{"containerPort": 80, "protocol": "UDP"}]}),
    );
    assert_eq!(merged["ports"], json!([{"containerPort": 80, "protocol": "UDP"}]));
}

#[test]
fn lists_without_a_key_are_replaced() {
    let of_container = [
        ("args", json!(["a"]), json!(["b"])),
        ("command", json!(["a"]), json!(["b"])),
        ("envFrom", json!([{"prefix": "a"}]), json!([{"prefix": "b"}])),
        (
            "securityContext",
            json!({"capabilities": {"add": ["A"], "drop": ["C"]}}),
            json!({"capabilities": {"add": ["B"], "drop": ["ALL"]}}),
        ),
    ];
    for (field, old, new) in of_container {
        assert_eq!(container(json!({field: old}), json!({field: new}))[field], new, "{field}");
    }
    let of_pod = [
        ("tolerations", json!([{"key": "a"}]), json!([{"key": "b"}])),
        (
            "dnsConfig",
            json!({"searches": ["a"], "options": [{"name": "x"}]}),
            json!({"searches": ["b"], "options": [{"name": "y"}]}),
        ),
        ("securityContext", json!({"sysctls": [{"name": "a"}]}), json!({"sysctls": [{"name": "b"}]})),
        ("hostAliases", json!([{"ip": "1", "hostnames": ["a"]}]), json!([{"ip": "1", "hostnames": ["b"]}])),
        (
            "volumes",
            json!([{"name": "v", "downwardAPI": {"items": [{"path": "a"}]}}]),
            json!([{"name": "v", "downwardAPI": {"items": [{"path": "b"}]}}]),
        ),
        (
            "volumes",
            json!([{"name": "v", "projected": {"sources": [{"secret": {}}]}}]),
            json!([{"name": "v", "projected": {"sources": [{"configMap": {}}]}}]),
        ),
    ];
    for (field, old, new) in of_pod {
        assert_eq!(spec(json!({field: old}), json!({field: new}))[field], new, "{field}");
    }
}

#[test]
fn a_missing_merge_key_is_an_error_with_its_place() {
    let error = merge(
        &pod(json!({"containers": [{"name": "app", "env": [{"name": "A"}]}]})),
        &pod(json!({"containers": [{"name": "app", "env": [{"name": "B"}, {"value": "1"}]}]})),
        &schema::POD,
    )
    .expect_err("no name");
    assert_eq!(error.path, "spec.containers[0].env[1]");
    assert!(error.to_string().contains("does not contain declared merge key: name"), "{error}");

    let error = merge(
        &pod(json!({"volumes": [{"emptyDir": {}}]})),
        &pod(json!({"volumes": named("v")})),
        &schema::POD,
    )
    .expect_err("no name");
    assert!(matches!(error.problem, Problem::NoMergeKey { key: "name", in_patch: false, .. }), "{error:?}");
}

#[test]
fn of_duplicates_only_the_first_merges() {
    let merged = container(
        json!({"env": [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "3"}]}),
        json!({"env": [{"name": "A", "value": "9"}]}),
    );
    assert_eq!(
        merged["env"],
        json!([{"name": "A", "value": "9"}, {"name": "A", "value": "3"}, {"name": "B"}])
    );
}

#[test]
fn null_deletes_in_old_and_new_items() {
    let merged =
        spec(json!({"volumes": []}), json!({"volumes": [{"name": "workload-socket", "emptyDir": null}]}));
    assert_eq!(merged["volumes"], json!([{"name": "workload-socket"}]));
    let merged = spec(json!({}), json!({"volumes": [{"name": "workload-socket", "emptyDir": null}]}));
    assert_eq!(merged["volumes"], json!([{"name": "workload-socket"}]));
    let merged = spec(
        json!({"volumes": [{"name": "s", "emptyDir": {"medium": "Memory"}}]}),
        json!({"volumes": [{"name": "s", "emptyDir": null, "csi": {"driver": "csi.spiffe.io"}}]}),
    );
    assert_eq!(merged["volumes"], json!([{"name": "s", "csi": {"driver": "csi.spiffe.io"}}]));
    let merged = container(
        json!({"resources": {"limits": {"cpu": "1"}}}),
        json!({"resources": {"limits": {"cpu": null}}}),
    );
    assert_eq!(merged["resources"], json!({"limits": {}}));
}

#[test]
fn two_sources_survive_unless_retain_keys_says_otherwise() {
    let old = json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]});
    let merged = spec(old.clone(), json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}));
    assert_eq!(
        merged["volumes"],
        json!([{"name": "v", "emptyDir": {"medium": "Memory"}, "configMap": {"name": "c"}}])
    );
    let patch =
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]});
    assert_eq!(spec(old.clone(), patch)["volumes"], json!([{"name": "v", "configMap": {"name": "c"}}]));
    let patch = json!({"volumes": [{"name": "v", "$retainKeys": ["name"], "configMap": {"name": "c"}}]});
    let error = merge(&pod(old), &pod(patch), &schema::POD).expect_err("configMap is not retained");
    assert_eq!(error.problem, Problem::NotRetained { key: "configMap".to_owned() });
}

#[test]
fn patch_directives_in_maps() {
    let old = json!({"securityContext": {"runAsUser": 1, "privileged": true}, "image": "a"});
    let merged = container(old.clone(), json!({"securityContext": {"$patch": "replace", "runAsGroup": 2}}));
    assert_eq!(merged["securityContext"], json!({"runAsGroup": 2}));
    let merged = container(old.clone(), json!({"securityContext": {"$patch": "delete", "runAsGroup": 2}}));
    assert_eq!(merged["securityContext"], json!({}));
    let merged = container(old.clone(), json!({"securityContext": {"$patch": "merge", "runAsGroup": 2}}));
    assert_eq!(merged["securityContext"], json!({"runAsUser": 1, "privileged": true, "runAsGroup": 2}));
    let error =
        merge(&old, &json!({"securityContext": {"$patch": "drop"}}), &schema::CONTAINER).expect_err("drop");
    assert_eq!(error.path, "securityContext");
    assert!(error.to_string().contains("expected replace, delete or merge"), "{error}");
}

#[test]
fn patch_directives_in_lists() {
    let old = json!({"env": named("A B C")});
    let merged = container(old.clone(), json!({"env": [{"name": "B", "$patch": "delete"}, {"name": "D"}]}));
    assert_eq!(merged["env"], named("D A C"));
    let merged = container(old.clone(), json!({"env": [{"$patch": "replace"}, {"name": "D"}]}));
    assert_eq!(merged["env"], named("D"));
    let merged = container(old.clone(), json!({"env": [{"name": "B", "$patch": "merge", "value": "1"}]}));
    assert_eq!(merged["env"], json!([{"name": "A"}, {"name": "B", "value": "1"}, {"name": "C"}]));
    let merged = container(json!({}), json!({"env": [{"name": "B", "$patch": "delete"}, {"name": "D"}]}));
    assert_eq!(merged["env"], named("D"));
    merge(&old, &json!({"env": [{"$patch": "delete"}]}), &schema::CONTAINER).expect_err("which one?");
}

#[test]
fn primitive_lists_and_orders() {
    let meta =
        |original: Value, patch: Value| merge(&original, &patch, &schema::OBJECT_META).expect("a merge");
    let old = json!({"finalizers": ["a", "b", "c"]});
    let merged =
        meta(old.clone(), json!({"finalizers": ["d", "b"], "$deleteFromPrimitiveList/finalizers": ["c"]}));
    assert_eq!(merged["finalizers"], json!(["d", "a", "b"]));
    let merged = meta(old, json!({"$setElementOrder/finalizers": ["c", "b", "a"]}));
    assert_eq!(merged, json!({"finalizers": ["c", "b", "a"]}));

    let order = json!({"env": [{"name": "N"}], "$setElementOrder/env": named("C N A")});
    let merged = container(json!({"env": named("A B C")}), order);
    assert_eq!(merged["env"], named("B C N A"));
    let wrong = json!({"env": named("M N"), "$setElementOrder/env": named("N M")});
    let error = merge(&json!({}), &wrong, &schema::CONTAINER).expect_err("the order");
    assert_eq!(error.problem, Problem::OrderMismatch { list: "env".to_owned() });
}

#[test]
fn integers_stay_integers() {
    let merged = container(json!({}), json!({"securityContext": {"runAsUser": 1_000_629_999_i64}}));
    assert_eq!(merged.to_string(), r#"{"securityContext":{"runAsUser":1000629999}}"#);
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
                let expected = directive::settle(expected, &Path::root()).expect("settled");
                assert_eq!(ours.ok(), expected, "{} over {}", case["patch"], case["original"]);
            }
            None => assert!(ours.is_err(), "{}: {} over {}", case["error"], case["patch"], case["original"]),
        }
    }
}
