//! Writing YAML, and reading it back.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::yaml::serialize::serialize;
use crate::yaml::*;

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}",
        "-{0,3}[/$(]?[a-zA-Z]{1,6}[ -~]{0,6}",
        "-?[yYnNoO][oOnNeEfF]?[sSfF]?",
        "[-+0-9._:eExXobaftnyTZ ]{0,8}",
        "[ \\t\\n\\r#:'\"|>a\\-]{0,12}",
        "[{\\[][ -~]{0,8}",
        "[0-9]{1,25}",
        "[a-z]{1,5}(\n {0,3}[a-z#:-]{0,5}){0,4}\n{0,2}",
        Just("yes".to_owned()),
        Just("<<".to_owned()),
        Just("=".to_owned()),
        Just("2001-12-14t21:59:43.10-05:00".to_owned()),
        Just("k".repeat(1500)),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite() && f.fract() != 0.0).prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any_text(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_written_reads_back(value in any_json()) {
        let text = write(&value);
        prop_assert_eq!(read(&text).map_err(|e| format!("{e}\n{text}")), Ok(value));
    }

    #[test]
    fn the_fast_writer_writes_what_the_serializer_does(value in any_json()) {
        prop_assert_eq!(write(&value), serialize(&value));
    }

    #[test]
    fn any_text_is_answered(text in any_text()) {
        let _ = read_overlay(&text);
        let _ = scalar_spans(&text);
        let documents = read_documents(text.as_bytes());
        if let Ok(documents) = documents {
            let whole: String = documents.iter().flat_map(|d| [d.separator.as_str(), d.body.as_str()]).collect();
            prop_assert_eq!(whole, text);
        }
    }
}

#[test]
fn a_block_never_begins_with_a_tab() {
    for text in ["\tx\n\ty", "\tset -e\n\texec x\n", "\n\tz\n", "\n\n\tz", "\t- x\n"] {
        let value = json!({"args": [text], "annotation": text});
        let written = write(&value);
        assert!(!written.contains('|') && !written.contains('\t'), "{written}");
        assert_eq!(read(&written), Ok(value), "{written}");
    }
}

#[test]
fn writing_looks_like_kubectl() {
    let value = json!({
        "apiVersion": "v1",
        "metadata": {"annotations": {"a/b": "yes", "empty": "", "json": "{\"a\":['b']}"}, "labels": {}},
        "spec": {
            "containers": [{"name": "a", "args": ["-u", "--x", "*", "10.0.0.0/8", "1337", "a: b", "#"], "env": []}],
            "runAsUser": 1337.0,
            "matrix": [[1, [2]], {"b": null}],
        },
        "text": "one\n  two\n\nthree\n",
        "tail": "one\ntwo",
        "more": "one\n\n\n",
    });
    let expected = "apiVersion: v1
metadata:
  annotations:
    a/b: \"yes\"
    empty: \"\"
    json: '{\"a\":[''b'']}'
  labels: {}
spec:
  containers:
  - name: a
    args:
    - -u
    - --x
    - \"*\"
    - 10.0.0.0/8
    - \"1337\"
    - \"a: b\"
    - '#'
    env: []
  runAsUser: 1337
  matrix:
  - - 1
    - - 2
  - b: null
text: |
  one
    two

  three
tail: |-
  one
  two
more: |+
  one


";
    assert_eq!(write(&value), expected);
}

#[test]
fn strings_that_a_reader_could_misread_are_quoted() {
    let words = "yes No on OFF y N true null ~ 1_000 12:30 190:20:30.5 2001-01-01 2001-12-14t21:59:43.10-05:00 = << 1 -1 +1 \
        1e3 0x10 012 0o7 0b1 .5 1. .inf -.inf .NaN - --- ... a: *a &a !a @a `a %a {a} [a] | > 'a' \"a\" 1__0 0x_1";
    let others = [
        "", "- a", "a: b", "a #b", " a", "a ", "? a", "a\tb", "a\r\nb", "\u{feff}", "\u{85}", "\u{2028}",
        "\u{7f}",
    ];
    for text in words.split_whitespace().chain(others) {
        let written = write(&json!(text));
        assert!(written.starts_with(['"', '\'']), "{text:?}: {written}");
        assert_eq!(read(&written), Ok(json!(text)));
    }
}

#[test]
fn strings_that_no_reader_misreads_are_plain() {
    for text in "a a:b a#b -u --a=b 10.0.0.0/8 v1.2.3 /a/b a=b $(VAR) <none> é".split(' ').chain(["a b"]) {
        assert_eq!(write(&json!(text)), format!("{text}\n"));
    }
}
