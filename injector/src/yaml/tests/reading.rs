//! Parsing of texts.

use serde_json::{Value, json};

use crate::yaml::*;

/// `tests/oracle/yaml.json` was recorded with `kubectl label --local`.
#[test]
fn recorded_readings_of_kubernetes() {
    let recorded: Vec<Value> =
        serde_json::from_str(include_str!("../../../tests/oracle/yaml.json")).expect("the recording");
    assert!(recorded.len() > 100, "{}", recorded.len());
    let mut wrong = Vec::new();
    // The parser is stricter with quoted texts whose later lines are not indented, and laxer with `\/`, which
    // is JSON's.
    let different = ["x:\n  v: \"multi\n  line\n\n  text\"\n", "x:\n  v: \"\\/\"\n"];
    for case in &recorded {
        if different.iter().any(|text| case["yaml"] == *text) {
            continue;
        }
        let ours = read(case["yaml"].as_str().expect("text")).map(|mut value| value["x"].take());
        let good = match (&ours, case.get("json")) {
            (Ok(value), Some(expected)) => value == expected,
            (Err(_), None) => true,
            _ => false,
        };
        if !good {
            wrong.push(format!("{case}\n  ours: {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As Go's encoding/base64 and encoding/json have it: line breaks are skipped, each byte that is not UTF-8
/// becomes U+FFFD.
#[test]
fn binary_values_are_the_text_that_they_encode() {
    for (given, expected) in [
        ("!!binary aGVsbG8=", Some("hello")),
        ("!<tag:yaml.org,2002:binary> 'aGVsbG8='", Some("hello")),
        ("!!binary |\n  aGVs\n  bG8=\n", Some("hello")),
        ("!!binary aGVsbG9=", Some("hello")),
        ("!!binary ''", Some("")),
        ("!!binary 4oJh", Some("\u{fffd}\u{fffd}a")),
        ("!!binary aGVsbG8", None),
        ("!!binary 'aGVs bG8='", None),
        ("!!binary '%'", None),
    ] {
        let read = read(&format!("v: {given}"));
        assert_eq!(
            read.as_ref().ok().map(|value| value["v"].clone()),
            expected.map(Value::from),
            "{given}: {read:?}"
        );
    }
}

#[test]
fn merge_keys_may_have_their_tag() {
    let expected = json!({"a": {"x": 1}, "b": {"x": 1, "z": 2}});
    for key in ["<<", "!!merge <<", "!<tag:yaml.org,2002:merge> <<"] {
        let text = format!("a: &a\n  x: 1\nb:\n  {key}: *a\n  z: 2\n");
        assert_eq!(read(&text), Ok(expected.clone()), "{key}");
    }
}

fn env(value: &str) -> Result<Value, YamlError> {
    let text = format!("spec:\n  containers:\n  - name: a\n    env:\n    - name: A\n      value: {value}\n");
    Ok(read_overlay(&text)?.value)
}

#[test]
fn overlays_are_typed_strictly() {
    for (given, found) in [
        ("5", "number"),
        ("true", "bool"),
        ("on", "bool"),
        ("012", "number"),
        ("1e3", "number"),
        ("[a]", "array"),
    ] {
        let error = env(given).expect_err(given);
        let text = error.to_string();
        let expected = format!(
            "cannot unmarshal {found} into Go struct field spec.containers[0].env[0].value of type string"
        );
        assert!(text.starts_with(&expected), "{text}");
    }
    for given in ["'5'", "text", "null", "2001-01-01", "12:30"] {
        env(given).expect(given);
    }
    let error =
        read_overlay("spec: {containers: [{name: a, ports: [{containerPort: '80'}]}]}").expect_err("quoted");
    assert!(error.to_string().contains("ports[0].containerPort of type int32"), "{error}");
    let error = read_overlay("metadata: {annotations: {a: 1}}").expect_err("a number");
    assert!(error.to_string().contains("metadata.annotations.a of type string"), "{error}");
    let error = read_overlay("spec: {containers: {name: a}}").expect_err("a map");
    assert!(error.to_string().contains("cannot unmarshal object"), "{error}");
}

#[test]
fn overlays_keep_directives_and_lose_unknown_fields() {
    let patch =
        read_overlay("spec: {containers: [{name: a, args: [null, x], image: null}]}").expect("nulls").value;
    assert_eq!(patch["spec"]["containers"][0], json!({"name": "a", "args": ["", "x"], "image": null}));
    let text = "spec:\n  $patch: replace\n  unheardOf: 5\n  containers:\n  - name: a\n    $setElementOrder/env: [{name: A}]\n    ports:\n    - containerPort: 1e1\n    livenessProbe: {httpGet: {port: 80}}\n    resources: {limits: {cpu: 2}}\n";
    let expected = json!({"spec": {"$patch": "replace", "containers": [{
        "name": "a",
        "$setElementOrder/env": [{"name": "A"}],
        "ports": [{"containerPort": 10}],
        "livenessProbe": {"httpGet": {"port": 80}},
        "resources": {"limits": {"cpu": "2"}},
    }]}});
    assert_eq!(read_overlay(text).expect("a patch").value, expected);
}

#[test]
fn json_is_read_too() {
    let text = "{\n\t\"kind\": \"Pod\",\n\t\"a\": [\n\t\t1,\n\t\t{\"b\":\"x\\/\\u00e9\\ud83d\\ude00\"}\n\t],\n\t\"c\":18446744073709551615}\n";
    assert_eq!(read(text), Ok(json!({"kind": "Pod", "a": [1, {"b": "x/é😀"}], "c": u64::MAX})));
}
