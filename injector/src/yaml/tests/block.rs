//! The fast reader and the parser agree wherever the fast one reads a text.

use proptest::prelude::*;

use crate::config::{BUILTIN_CONFIG, BUILTIN_VALUES};
use crate::yaml::{MAX_NODES, block, read};

/// Whether the fast reader read the text, after a comparison of what both read and where the scalars are.
#[track_caller]
fn agrees(text: &str) -> bool {
    let Some((value, spans)) = block::read(text, false) else { return false };
    let expected = read::parse(MAX_NODES, text).unwrap_or_else(|error| panic!("{text}\n{error}\n{value}"));
    assert_eq!(value.to_string(), expected.value.to_string(), "{text}");
    assert_eq!((spans, None), (expected.spans, expected.duplicate), "{text}");
    let as_written = block::read(text, true).map(|(value, _)| value.to_string());
    assert_eq!(as_written, read::parse_as_written(text).map(|value| value.to_string()), "{text}");
    true
}

#[test]
fn plain_block_style_is_read() {
    for text in [
        "a: b\n",
        "a: b",
        "a:\n  b: 1\n  c: yes\nd: null\n",
        "spec:\n  containers:\n  - name: x\n    image: y # comment\n    env:\n    - name: A\n      value: \"1\"\n  # comment\n  volumes:\n    - name: v\n      emptyDir: {}\n",
        "a: |\n  x\n   y\n\n  z\nb: 1\n",
        "a: |-\n    x\n\n\nb: ''\n",
        "- a\n- 'b''c'\n- \"d\\\"e\\n\"\n- f: 1\n  g: []\n",
        "a:\n\n\n- |\n  x\n- y\n",
        "\"k\": v\n'l': http://x:80/#y\n8: -1\n",
        "- {name: a, value: \"b\", from: {ref: {path: spec.x}}}\n- {}\n- [A, 'b', 1, [], {c: d}]\n",
        "a: {\n  b: c,\n  \"d\": \"e\",\n  }\nf: [\n  1,\n  2\n  ]\n",
        "a:\n  b: {\"c\":\"d\",\"e\":[1,true,null]}\n",
        "httpGet: {path: /healthz/ready, port: 15021}\nargs: [.x, _y, ./z]\n",
    ] {
        assert!(agrees(text), "{text}");
    }
}

#[test]
fn anything_else_is_left_to_the_parser() {
    for text in [
        "",
        "a",
        "{a: b}",
        "a: 1\na: 2\n",
        "a: {b: 1, b: 2}\n",
        "a: {b}",
        "a: {b: }",
        "a: [b c]",
        "a: {b: c} d",
        "a: &x b\nc: *x\n",
        "a: b\n  c\n",
        "a: >\n  b\n",
        "<<: {}\n",
        "a: b: c\n",
        "---\na: b\n",
        "a: !!str 1\n",
        "a:\n  - b\n c: d\n",
        "a: \"b\n  c\"\n",
        "a: |\n",
        "a: |2\n   b\n",
        "? a\n: b\n",
        "a:\tb\n",
        "é: b\n",
        "- - a\n",
        "a: .inf\n",
        "a:\n  b\n",
    ] {
        assert!(!agrees(text), "{text}");
    }
}

#[test]
fn the_builtin_files_are_read_alike() {
    agrees(BUILTIN_CONFIG);
    agrees(BUILTIN_VALUES);
}

/// Pieces of lines that are likely to interact, separated by `¦`.
const PIECES: &str = "{¦}¦[¦]¦, ¦,¦{a: ¦{\"a\":¦\n¦\n¦\n  ¦\n  ¦\n    ¦\n- ¦\n  - ¦- ¦a¦b¦a: ¦b: ¦c:¦name: ¦\"k\": ¦'l': ¦1¦-1¦\
    yes¦null¦1e3¦\"x\"¦\"x\\\"y\"¦'x''y'¦'¦\"¦|¦|-¦|+¦/a¦.5¦{}¦[]¦ # c¦#¦x y¦x:y¦x#y¦:¦: ¦ ¦<<: ¦---¦~";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_fast_reader_agrees_with_the_parser(pieces in prop::collection::vec(prop::sample::select(PIECES.split('¦').collect::<Vec<_>>()), 0..24)) {
        agrees(&pieces.concat());
    }
}
