//! Whole files, hostile ones among them; spans.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::json;

use crate::yaml::*;

#[test]
fn files_are_typed_forgivingly() {
    let text = b"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: 5\nspec:\n  replicas: 1\n  template:\n    metadata:\n      labels: {a: true, b: 1e3, c: 0x10, d: 012, e: 1e6, f: yes}\n    spec:\n      future: 012\n      securityContext: {runAsUser: 012}\n      containers:\n      - name: a\n        args: [1, true]\n";
    let documents = read_documents(text).expect("a file");
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "5"},
        "spec": {"replicas": 1, "template": {
            "metadata": {"labels": {"a": "true", "b": "1000", "c": "16", "d": "10", "e": "1e+06", "f": "true"}},
            "spec": {"future": 10, "securityContext": {"runAsUser": 10}, "containers": [{"name": "a", "args": ["1", "true"]}]},
        }},
    });
    assert_eq!(documents[0].value, expected);
    let list =
        b"kind: List\nitems:\n- kind: Pod\n  metadata: {name: 7}\n- kind: Service\n  metadata: {name: 7}\n";
    let documents = read_documents(list).expect("a list");
    assert_eq!(documents[0].value["items"][0]["metadata"]["name"], "7");
    assert_eq!(documents[0].value["items"][1]["metadata"]["name"], 7);
    let cron = b"kind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {nodeName: 5}}}}}\n";
    let documents = read_documents(cron).expect("a cron job");
    assert_eq!(documents[0].value["spec"]["jobTemplate"]["spec"]["template"]["spec"]["nodeName"], "5");
}

/// In every style, and where the key is part of another key of its line.
#[test]
fn text_that_is_read_as_something_else_is_named_in_every_style() {
    let surprises = |text: &str| read_documents(text.as_bytes()).expect("a file").remove(0).surprises;
    let block = "kind: Pod\nmetadata:\n  name: a\n  labels:\n    self: x\n    f: yes\n    on: Y\nspec:\n  containers:\n  - name: web\n    args:\n    - on\n    - 0x10\n    env:\n    - name: A\n      value: b\n    - name: B\n      value: off\n";
    let flow = "{kind: Pod, metadata: {name: a, labels: {self: x, f: yes, on: Y}}, spec: {containers: [{name: web, args: [on, 0x10], env: [{name: A, value: b}, {name: B, value: off}]}]}}";
    let mixed = "kind: Pod\nmetadata: {name: a, labels: {self: x, f: yes, on: Y}}\nspec:\n  containers:\n  - {name: web, args: [on, 0x10], env: [{name: A, value: b}, {name: B, value: off}]}\n";
    let anchors = "kind: Pod\nmetadata: {name: a, labels: {self: x, <<: &l {f: yes, on: Y}}}\nspec:\n  containers:\n  - name: web\n    args: [&o on, 0x10]\n    env: [{name: A, value: b}, {name: B, value: off}]\n";
    let expected = [
        "metadata.labels.f: yes is true in YAML 1.1: write it in quotes, if it is meant as text",
        "metadata.labels.true: Y is true in YAML 1.1: write it in quotes, if it is meant as text",
        "spec.containers[0].args[0]: on is true in YAML 1.1: write it in quotes, if it is meant as text",
        "spec.containers[0].args[1]: 0x10 is 16 in YAML 1.1: write it in quotes, if it is meant as text",
        "spec.containers[0].env[1].value: off is false in YAML 1.1: write it in quotes, if it is meant as text",
    ];
    for text in [block, flow, mixed, anchors] {
        assert_eq!(surprises(text), expected, "{text}");
    }
    let list = format!("kind: List\nitems:\n- kind: Service\n- {flow}\n");
    assert_eq!(surprises(&list), expected);
    let plain = "{kind: Pod, metadata: {name: 5, labels: {a: true, b: 'yes', c: \"on\", d: null}}, spec: {hostNetwork: on}}";
    assert_eq!(surprises(plain), <[&str; 0]>::default());
}

#[test]
fn documents_keep_their_bytes() {
    let text =
        "# head\n---\na: 1\r\n--- # second\r\nb: |\n  ---x\n\n---\n---   \n--- {c: 3}\n...\n---\n# tail";
    let documents = read_documents(text.as_bytes()).expect("a file");
    let parts: Vec<_> =
        documents.iter().map(|d| (d.separator.as_str(), d.body.as_str(), d.value.clone())).collect();
    let expected = [
        ("", "# head\n", json!(null)),
        ("---\n", "a: 1\r\n", json!({"a": 1})),
        ("--- # second\r\n", "b: |\n  ---x\n\n", json!({"b": "---x\n"})),
        ("---\n", "", json!(null)),
        ("---   \n", "", json!(null)),
        ("---", " {c: 3}\n...\n", json!({"c": 3})),
        ("---\n", "# tail", json!(null)),
    ];
    assert_eq!(parts, expected);
    assert_eq!(read_documents(b""), Ok(vec![]));
    assert_eq!(read_documents("\u{feff}---\na: 1\n".as_bytes()).expect("a mark")[0].value, json!({"a": 1}));
}

#[test]
fn errors_name_the_line_of_the_file() {
    let error = read_documents(b"a: 1\n---\nb: 2\nc: [\n").expect_err("open");
    assert!(error.line >= 4, "{error}");
    let error = read_documents(b"a: 1\nb: \xff\n").expect_err("not UTF-8");
    assert_eq!((error.line, error.column, &error.problem), (2, 4, &Problem::NotUtf8));
    let error = read("a: 1\nb: !!int x\n").expect_err("no integer");
    assert_eq!((error.line, error.column), (2, 10), "{error}");
    let error = read("a: .nan").expect_err("no number");
    assert!(error.to_string().contains(".nan is not a number in JSON"), "{error}");
    assert_eq!(read("a: 1\n---\nb: 2\n").expect_err("two").problem, Problem::ManyDocuments);
    assert_eq!(read("---\na: 1\n---\n"), Ok(json!({"a": 1})));
}

/// In less than a minute of this thread's processor time, which does not depend on what else the computer
/// runs.
fn quickly<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let used = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the thread's usage");
        (usage.user_time() + usage.system_time()).num_milliseconds()
    };
    let before = used();
    let done = work();
    let spent = used() - before;
    assert!(spent < 60_000, "{what}: {spent} ms");
    done
}

#[test]
fn hostile_texts_are_refused_in_time() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let error = quickly("a bomb", || read(&bomb)).expect_err("a bomb");
    assert_eq!(error.problem, Problem::TooManyNodes(MAX_NODES));

    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(1000));
    let error = quickly("long aliases", || read(&long)).expect_err("long aliases");
    assert_eq!(error.problem, Problem::TooManyNodes(MAX_NODES));

    for deep in ["[".repeat(1_000_000), "{a: ".repeat(100_000), "- ".repeat(100_000), "? ".repeat(100_000)] {
        quickly("nesting", || read(&deep)).expect_err("nesting");
        quickly("nesting", || scalar_spans(&deep)).expect_err("nesting");
    }
    let nested = format!("{}{}", "[".repeat(101), "]".repeat(101));
    assert_eq!(read(&nested).expect_err("101 levels").problem, Problem::TooDeep);
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    read(&nested).expect("100 levels");

    let large = "a: b\n".repeat(2 << 20);
    assert_eq!(
        quickly("10 MB", || read_documents(large.as_bytes())).expect_err("10 MB").problem,
        Problem::DocumentTooLong { line: 1 }
    );
    let many = "- a\n".repeat((6 << 20) / 4);
    assert_eq!(quickly("many", || read(&many)).expect_err("many").problem, Problem::TooManyNodes(MAX_NODES));
}

#[test]
fn spans_cover_scalars_and_nothing_else() {
    let text =
        "a: \"é x\" # note\nb: &n [ 'it''s', plain text ]\nc: |-\n  one\n  two\nd:\ne: !!str 5\nf: last\n";
    let spans = scalar_spans(text).expect("spans");
    let slices: Vec<_> = spans.iter().map(|span| &text[span.clone()]).collect();
    let within = |part: &str| {
        let start = text.find(part).expect(part);
        within_one_scalar(&spans, &(start..start + part.len()))
    };
    for part in ["a", "\"é x\"", "é x", "x", "it''s", "plain text", "one\n  two", "two", "last", "5"] {
        assert!(within(part), "{part:?} in {slices:?}");
    }
    for part in
        ["a: ", "# note", "note", "&n", "[", "'it''s', plain", "c: |", "two\nd", "!!str", "!!str 5", "t ]"]
    {
        assert!(!within(part), "{part:?} in {slices:?}");
    }
    assert!(within_one_scalar(&spans, &(2..2)), "nothing printed breaks out of nothing");
}

#[test]
fn value_that_breaks_out_is_seen() {
    for (value, kept) in [
        ("plain", true),
        ("with space, and: colon", true),
        ("x\", \"y\": \"z", false),
        ("x\" # ", false),
        ("x\"\nspec:\n  hostNetwork: true\n#", false),
    ] {
        let text = format!("annotations: {{\n  a: \"{value}\",\n}}\n");
        let start = text.find(value).expect("the value");
        let inside =
            scalar_spans(&text).is_ok_and(|spans| within_one_scalar(&spans, &(start..start + value.len())));
        assert_eq!(inside, kept, "{value:?}");
    }
}

/// What is behind a JSON text in one document is an error of YAML, but `jq` and `-o json` print JSON like
/// that.
#[test]
fn json_texts_that_follow_each_other_are_documents() {
    let text =
        "{\"a\": \"}{\\\"\"}{\"b\": [{}]}\n\n{\n  \"c\": {}\n}\n---\n{\"d\": 1} # note\n---\n{e: '}'}\n";
    let documents = read_documents(text.as_bytes()).expect("a file");
    let values: Vec<_> = documents.iter().map(|document| document.value.clone()).collect();
    let expected =
        [json!({"a": "}{\""}), json!({"b": [{}]}), json!({"c": {}}), json!({"d": 1}), json!({"e": "}"})];
    assert_eq!(values, expected);
    let all: String = documents.iter().flat_map(|d| [d.separator.as_str(), d.body.as_str()]).collect();
    assert_eq!(all, text, "the documents are the file");
    let mut parts = Parts::new(text.as_bytes());
    let mut places = Vec::new();
    while let Some(part) = parts.next_part().expect("a part") {
        places.push((part.number, part.line, part.joined, part.several));
    }
    assert_eq!(
        places,
        [
            (1, 1, false, true),
            (2, 1, true, true),
            (3, 3, true, true),
            (4, 7, false, true),
            (5, 9, false, true)
        ]
    );
    for one in ["{'a': 1}\n{\"b\": 2}\n", "{\"a\": 1}\nb\n"] {
        read_documents(one.as_bytes()).expect_err(one);
    }
    assert_eq!(read_documents(b"{\"a\": 1,\n  b: c}\n").expect("one").len(), 1);
}

/// A file has no limit, a document has one.
#[test]
fn the_limit_is_that_of_a_document() {
    let one = format!("---\na: {}\n", "x".repeat(1 << 20));
    let documents = read_documents(one.repeat(8).as_bytes()).expect("8 MiB");
    assert_eq!(documents.len(), 8);
    let large = format!("{one}{one}---\n{}{one}", "x: y\n".repeat(2 << 20));
    let error = read_documents(large.as_bytes()).expect_err("10 MB in one document");
    assert_eq!(error.problem, Problem::DocumentTooLong { line: 6 });
    assert!(error.to_string().contains("the document that begins in line 6 is larger than 6 MiB"), "{error}");
    // What no line break ends is not read to its end.
    let endless = std::io::Read::take(std::io::repeat(b'x'), 1 << 40);
    let mut parts = Parts::new(std::io::BufReader::new(endless));
    assert!(matches!(parts.next_part(), Err(PartError::Document { number: 1, .. })));
}
