//! Properties of every pod and every patch.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::schema;

/// JSON that hits the interesting names often.
fn any_json(directives: bool) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => "[a-c]".prop_map(Value::from),
        1 => (0..3_i64).prop_map(Value::from),
        1 => Just(Value::Bool(true)),
        1 => Just(if directives { Value::Null } else { json!("null") }),
        1 => Just(json!(if directives { "delete" } else { "x" })),
    ];
    let mut keys: Vec<&str> =
        "metadata spec containers env name value args finalizers volumes labels".split(' ').collect();
    if directives {
        keys.extend("ports containerPort $patch $retainKeys $setElementOrder/env".split(' '));
        keys.extend(["$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers"]);
    }
    leaf.prop_recursive(6, 80, 5, move |inner| {
        let key = prop::sample::select(keys.clone());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())
            }),
        ]
    })
}

fn any_list(key: &'static str, unique: bool) -> impl Strategy<Value = Value> {
    let item = ("[A-F]", prop::option::of("[xyz]"), prop::option::of("[xyz]"));
    prop::collection::vec(item, 0..6).prop_map(move |items| {
        let mut seen = Vec::new();
        let mut list = Vec::new();
        for (name, value, other) in items {
            if unique && seen.contains(&name) {
                continue;
            }
            seen.push(name.clone());
            let mut item = Map::new();
            item.insert(key.to_owned(), json!(name));
            item.extend(value.map(|v| ("value".to_owned(), json!(v))));
            item.extend(other.map(|v| ("other".to_owned(), json!(v))));
            list.push(Value::Object(item));
        }
        Value::Array(list)
    })
}

/// A container: lists by key, atomic lists, maps.
fn any_container(unique: bool) -> impl Strategy<Value = Value> {
    let args = prop::collection::vec("[ab]", 0..3);
    let labels = prop::collection::btree_map("[a-c]", "[x-z]", 0..3);
    (any_list("name", unique), any_list("mountPath", unique), args, labels)
        .prop_map(|(env, mounts, args, limits)| json!({"env": env, "args": args, "volumeMounts": mounts, "resources": {"limits": limits}}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_input_is_answered(original in any_json(true), patch in any_json(true)) {
        let _ = merge(&json!({"spec": original}), &json!({"spec": patch}), &schema::POD);
        let _ = merge(&original, &patch, &schema::POD);
        let _ = merge(&original, &patch, &schema::CONTAINER);
    }

    #[test]
    fn empty_patch_changes_nothing(spec in any_json(false), container in any_container(false)) {
        let pod = json!({"spec": spec});
        prop_assert_eq!(merge(&pod, &json!({}), &schema::POD), Ok(pod.clone()));
        if spec.is_object() {
            prop_assert_eq!(merge(&pod, &json!({"spec": {}}), &schema::POD), Ok(pod));
        }
        let empty = json!({"env": [], "volumeMounts": [], "resources": {"limits": {}}});
        prop_assert_eq!(merge(&container, &empty, &schema::CONTAINER), Ok(container));
    }

    /// Where no key occurs twice in one of the patch's lists: on a list that was not there the items are
    /// taken as they are, and merge with each other only the second time. Nor with `$retainKeys` or
    /// `$setElementOrder` in new items, which take effect only on what is there.
    #[test]
    fn merging_twice_is_merging_once(original in any_container(false), patch in any_container(true)) {
        let once = merge(&original, &patch, &schema::CONTAINER).expect("a merge");
        let twice = merge(&once, &patch, &schema::CONTAINER).expect("a merge");
        prop_assert_eq!(twice.to_string(), once.to_string());
    }

    /// A patch that deletes items and replaces whole lists and maps changes nothing the second time.
    #[test]
    fn merging_directives_twice_is_merging_them_once(
        original in any_container(true),
        patch in any_container(true),
        delete in prop::collection::vec(any::<bool>(), 6),
        replace in prop::option::weighted(0.3, prop::sample::select(vec!["replace", "delete"])),
    ) {
        let mut patch = patch;
        for (item, delete) in patch["env"].as_array_mut().expect("env").iter_mut().zip(delete) {
            if delete {
                item["$patch"] = json!("delete");
            }
        }
        if let Some(directive) = replace {
            patch["resources"]["$patch"] = json!(directive);
            patch["volumeMounts"].as_array_mut().expect("mounts").push(json!({"$patch": "replace"}));
        }
        let once = merge(&original, &patch, &schema::CONTAINER).expect("a merge");
        let twice = merge(&once, &patch, &schema::CONTAINER).expect("a merge");
        prop_assert_eq!(twice.to_string(), once.to_string());
    }

    #[test]
    fn items_of_the_patch_keep_its_order_and_others_theirs(original in any_container(true), patch in any_container(true)) {
        let merged = merge(&original, &patch, &schema::CONTAINER).expect("a merge");
        let names = |value: &Value| -> Vec<String> {
            value["env"].as_array().expect("env").iter().map(|item| item["name"].to_string()).collect()
        };
        let (old, new, all) = (names(&original), names(&patch), names(&merged));
        let from_patch: Vec<_> = all.iter().filter(|name| new.contains(name)).cloned().collect();
        prop_assert_eq!(&from_patch, &new);
        let others: Vec<_> = all.iter().filter(|name| !new.contains(name)).cloned().collect();
        let expected: Vec<_> = old.iter().filter(|name| !new.contains(name)).cloned().collect();
        prop_assert_eq!(others, expected);
    }

    #[test]
    fn keys_keep_their_order(original in any_container(false), patch in any_container(true)) {
        let mut pod = json!({"z": 1, "m": 2, "a": 3, "b": 4});
        for (key, value) in original.as_object().expect("fields") {
            pod[key] = value.clone();
        }
        let mut patch = patch;
        patch["m"] = Value::Null;
        patch["new"] = json!(1);
        let merged = merge(&pod, &patch, &schema::CONTAINER).expect("a merge");
        let keys: Vec<_> = merged.as_object().expect("fields").keys().cloned().collect();
        prop_assert_eq!(keys, ["z", "a", "b", "env", "args", "volumeMounts", "resources", "new"]);
    }
}
