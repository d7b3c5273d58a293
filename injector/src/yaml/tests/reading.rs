//! What texts mean.

use serde_json::{Value, json};

use crate::schema;
use crate::yaml::*;

#[test]
fn plain_scalars_mean_what_go_makes_of_them() {
    for (text, expected) in [
        ("y", json!(true)),
        ("No", json!(false)),
        ("ON", json!(true)),
        ("off", json!(false)),
        ("yEs", json!("yEs")),
        ("012", json!(10)),
        ("0o12", json!(10)),
        ("08", json!(8)),
        ("0x10", json!(16)),
        ("-0x10", json!(-16)),
        ("0b11", json!(3)),
        ("1_000", json!(1000)),
        ("+5", json!(5)),
        ("1e3", json!(1000)),
        ("1e1", json!(10)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("5.", json!(5)),
        ("1e400", json!("1e400")),
        ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
        ("1000629999", json!(1_000_629_999)),
        ("12:30", json!("12:30")),
        ("2001-01-01", json!("2001-01-01")),
        ("1.2.3", json!("1.2.3")),
        ("~", json!(null)),
        ("", json!(null)),
        ("=", json!("=")),
        ("-", json!([null])),
        ("!!str 5", json!("5")),
        ("!!int 5", json!(5)),
        ("! 5", json!("5")),
        ("'5'", json!("5")),
    ] {
        assert_eq!(read(text), Ok(expected), "{text}");
    }
}

/// `tests/oracle/yaml.json` was recorded with `kubectl label --local`.
#[test]
fn recorded_readings_of_kubernetes() {
    let recorded: Vec<Value> =
        serde_json::from_str(include_str!("../../../tests/oracle/yaml.json")).expect("the recording");
    assert!(recorded.len() > 100, "{}", recorded.len());
    let mut wrong = Vec::new();
    // The parser is stricter with quoted texts whose later lines are not indented, and laxer with `\/`, which is JSON's.
    let different =
        ["x:\n  v: \"multi\n  line\n\n  text\"\n", "x:\n  v: \"\\/\"\n", "x:\n  v: !!binary aGVsbG8=\n"];
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

#[test]
fn flow_maps_over_many_lines() {
    let text = r#"
metadata:
  labels:
    security.istio.io/tlsMode: istio
  annotations: {
    istio.io/rev: "default",

    # a comment
    kubectl.kubernetes.io/default-container: app,
    traffic.sidecar.istio.io/includeInboundPorts: "80,90",


  }
spec:
  initContainers: []
  containers:
  # another
  - name: istio-proxy
    env:
    - name: ISTIO_META_POD_PORTS
      value: |-
        [
            {"containerPort":80}
        ]
  volumes:
  - emptyDir:
    name: workload-socket
"#;
    let Overlay { value, spans } = read_overlay_with_spans(text, &schema::POD).expect("an overlay");
    assert_eq!(spans, scalar_spans(text).expect("spans"));
    let annotations = json!({
        "istio.io/rev": "default",
        "kubectl.kubernetes.io/default-container": "app",
        "traffic.sidecar.istio.io/includeInboundPorts": "80,90",
    });
    assert_eq!(value["metadata"]["annotations"], annotations);
    assert_eq!(value["spec"]["initContainers"], json!([]));
    let env = &value["spec"]["containers"][0]["env"][0];
    assert_eq!(env["value"], "[\n    {\"containerPort\":80}\n]");
    assert_eq!(value["spec"]["volumes"], json!([{"emptyDir": null, "name": "workload-socket"}]));
}

fn env(value: &str) -> Result<Value, YamlError> {
    read_overlay(&format!(
        "spec:\n  containers:\n  - name: a\n    env:\n    - name: A\n      value: {value}\n"
    ))
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
    let patch = read_overlay("spec: {containers: [{name: a, args: [null, x], image: null}]}").expect("nulls");
    assert_eq!(patch["spec"]["containers"][0], json!({"name": "a", "args": ["", "x"], "image": null}));
    let text = "spec:\n  $patch: replace\n  unheardOf: 5\n  containers:\n  - name: a\n    $setElementOrder/env: [{name: A}]\n    ports:\n    - containerPort: 1e1\n    livenessProbe: {httpGet: {port: 80}}\n    resources: {limits: {cpu: 2}}\n";
    let expected = json!({"spec": {"$patch": "replace", "containers": [{
        "name": "a",
        "$setElementOrder/env": [{"name": "A"}],
        "ports": [{"containerPort": 10}],
        "livenessProbe": {"httpGet": {"port": 80}},
        "resources": {"limits": {"cpu": "2"}},
    }]}});
    assert_eq!(read_overlay(text), Ok(expected));
}

#[test]
fn json_is_read_too() {
    let text = "{\n\t\"kind\": \"Pod\",\n\t\"a\": [\n\t\t1,\n\t\t{\"b\":\"x\\/\\u00e9\\ud83d\\ude00\"}\n\t],\n\t\"c\":true}\n";
    assert_eq!(read(text), Ok(json!({"kind": "Pod", "a": [1, {"b": "x/é😀"}], "c": true})));
}
