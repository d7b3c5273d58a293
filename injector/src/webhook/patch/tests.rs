use proptest::prelude::*;
use serde_json::json;

use super::*;

fn text(old: &Value, new: &Value) -> String {
    let operations = serde_json::to_value(between(old, new)).unwrap();
    let patch: json_patch::Patch = serde_json::from_value(operations.clone()).unwrap();
    let mut patched = old.clone();
    json_patch::patch(&mut patched, &patch).unwrap_or_else(|error| panic!("{error}\n{old}\n{new}\n{patch}"));
    assert_eq!(&patched, new, "{old}\n{patch}");
    let lines: Vec<String> = operations
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            let word = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
            [word("op"), word("from"), word("path")].join(" ").replace("  ", " ")
        })
        .collect();
    lines.join(", ")
}

fn named(names: &str) -> Value {
    names.chars().map(|name| json!({"name": name.to_string(), "value": 1})).collect()
}

#[test]
fn neighbours_are_not_touched() {
    for (old, new, expected) in [
        ("ab", "ab", ""),
        ("ab", "xab", "add /0"),
        ("ab", "axb", "add /1"),
        ("ab", "abx", "add /2"),
        ("abc", "b", "remove /0, remove /1"),
        ("abcd", "bcda", "move /0 /3"),
        ("abcd", "dabc", "move /3 /0"),
        ("abcd", "acbd", "move /1 /2"),
        ("pw", "iwp", "add /0, move /1 /2"),
        ("", "ab", "add /0, add /1"),
        ("ab", "", "remove /0, remove /0"),
    ] {
        assert_eq!(text(&named(old), &named(new)), expected, "{old} {new}");
    }
}

#[test]
fn items_are_matched_by_the_first_key_that_differs() {
    let mounts = |paths: &[&str]| -> Value {
        paths.iter().map(|path| json!({"name": "data", "mountPath": path})).collect()
    };
    assert_eq!(text(&mounts(&["/a", "/b"]), &mounts(&["/c", "/a", "/b"])), "add /0");
    let ports =
        |ports: &[u16]| -> Value { ports.iter().map(|port| json!({"containerPort": port})).collect() };
    assert_eq!(text(&ports(&[80, 81]), &ports(&[81])), "remove /0");
    let doubled = json!([{"name": "a", "value": 1}, {"name": "a", "value": 2}, {"name": "b"}]);
    let more = json!([{"name": "a", "value": 1}, {"name": "a", "value": 3}, {"name": "x"}, {"name": "b"}]);
    assert_eq!(text(&doubled, &more), "replace /1/value, add /2");
}

#[test]
fn only_changes_are_patched_and_keys_escaped() {
    let old = json!({"a/b": {"c~d": 1, "e": [1, 2, 3]}, "gone": null, "same": {"x": []}});
    let new = json!({"a/b": {"c~d": 2, "e": [1, 3]}, "same": {"x": []}, "~/": 1});
    assert_eq!(text(&old, &new), "remove /gone, replace /a~1b/c~0d, remove /a~1b/e/1, add /~0~1");
    assert_eq!(
        text(
            &json!({"containers": [{"name": "a", "args": ["x"]}]}),
            &json!({"containers": [{"name": "b"}, {"name": "a", "args": ["y"]}]})
        ),
        "add /containers/0, replace /containers/1/args/0"
    );
    assert_eq!(text(&json!(1), &json!([1])), "replace ");
}

fn any_value() -> impl Strategy<Value = Value> {
    let key = prop_oneof!["[a-c]", "[~/0-1]{1,2}", Just("name".to_owned())];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..3).prop_map(Value::from),
        "[a-c]?".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        let item = ("[a-h]", inner.clone()).prop_map(|(name, value)| json!({"name": name, "value": value}));
        let by_path =
            ("[a-h]", inner.clone()).prop_map(|(path, value)| json!({"mountPath": path, "value": value}));
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(item, 0..9).prop_map(Value::from),
            prop::collection::vec(by_path, 0..9).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn orders() -> impl Strategy<Value = (String, String)> {
    let half = || prop::sample::subsequence(('a'..='p').collect::<Vec<_>>(), 0..16).prop_shuffle();
    (half(), half()).prop_map(|(old, new)| (old.into_iter().collect(), new.into_iter().collect()))
}

proptest! {
    #[test]
    fn patch_turns_the_old_value_into_the_new_one(old in any_value(), new in any_value()) {
        text(&old, &new);
    }

    #[test]
    fn any_order_of_items_is_reached((old, new) in orders()) {
        let steps = text(&named(&old), &named(&new));
        // Every item comes, goes or moves once at most.
        let items: std::collections::HashSet<char> = old.chars().chain(new.chars()).collect();
        let count = if steps.is_empty() { 0 } else { steps.split(", ").count() };
        prop_assert!(count <= items.len(), "{old} {new}: {steps}");
    }

    #[test]
    fn equal_values_need_no_operation(value in any_value()) {
        prop_assert_eq!(between(&value, &value), vec![]);
    }
}
