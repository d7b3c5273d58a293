//! Whatever standard input holds: no panic, one document or none.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::GOOD;
use crate::common::{call, plugin};

/// JSON of any form, with keys that the plugin reads more often than others.
fn json_text() -> impl Strategy<Value = String> {
    const KEYS: [&str; 12] = [
        "cniVersion",
        "name",
        "prevResult",
        "runtimeConfig",
        "io.kubernetes.cri.pod-annotations",
        "sidecar.istio.io/status",
        "source",
        "capture",
        "exclude_namespaces",
        "deadline_ms",
        "backend",
        "cni.dev/valid-attachments",
    ];
    const TEXTS: [&str; 6] =
        ["1.1.0", "0.4.0", "annotations", "istio-proxy", "{\"version\":1,\"options\":{}}", "fail"];
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(&TEXTS[..]).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 24, 6, |inner| {
        let key = prop_oneof![proptest::sample::select(&KEYS[..]).prop_map(str::to_owned), any::<String>()];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(key, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    value.prop_map(|value| {
        let mut value = value;
        if let Some(object) = value.as_object_mut() {
            // Most get past the version, and none writes outside of this test.
            object.entry("cniVersion").or_insert_with(|| json!("1.1.0"));
            object.insert("cni_agent_run_dir".to_owned(), json!("/proc/nowhere"));
        }
        value.to_string()
    })
}

#[test]
fn any_input_gets_one_document_or_none() {
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let commands = proptest::sample::select(&["ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION", ""][..]);
    let input = prop_oneof![
        json_text().prop_map(String::into_bytes),
        (json_text(), any::<proptest::sample::Index>()).prop_map(|(text, cut)| {
            let mut bytes = text.into_bytes();
            bytes.truncate(cut.index(bytes.len() + 1));
            bytes
        }),
        proptest::collection::vec(any::<u8>(), 0..64),
    ];
    runner
        .run(&(commands, input), |(command, input)| {
            let variables = [&[("CNI_COMMAND", command)], &GOOD[..]].concat();
            let output = call(plugin(), &variables, &input);
            let has_result = !(output.success && matches!(command, "CHECK" | "DEL" | "GC" | "STATUS"));
            if has_result {
                let document: Result<Value, _> = serde_json::from_str(&output.stdout);
                prop_assert!(document.is_ok_and(|document| document.is_object()), "{command} {output:?}");
            } else {
                prop_assert_eq!(&output.stdout, "");
            }
            prop_assert!(
                !output.stderr.contains("defect") && !output.stdout.contains("\"code\":100"),
                "{output:?}"
            );
            Ok(())
        })
        .unwrap();
}
