use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

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

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}",
        "[-+0-9._:eExXobaftnyTZ ]{0,8}",
        "[ \\t\\n\\r#:'\"|>a\\-]{0,12}",
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
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite() && f.fract() != 0.0)
            .prop_map(Value::from),
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
    fn any_text_is_answered(text in any_text()) {
        let _ = read_overlay(&text);
        let _ = scalar_spans(&text);
        let documents = read_documents(text.as_bytes());
        if let Ok(documents) = documents {
            let whole: String = documents.iter().flat_map(|d| [d.separator, d.body]).collect();
            prop_assert_eq!(whole, text);
        }
    }
}

/// `tests/oracle/yaml.json` was recorded with `kubectl label --local`.
#[test]
fn recorded_readings_of_kubernetes() {
    let recorded: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/oracle/yaml.json")).expect("the recording");
    assert!(recorded.len() > 100, "{}", recorded.len());
    let mut wrong = Vec::new();
    // The parser is stricter with quoted texts whose later lines are not indented, and laxer with `\/`, which is JSON's.
    let different = [
        "x:\n  v: \"multi\n  line\n\n  text\"\n",
        "x:\n  v: \"\\/\"\n",
        "x:\n  v: !!binary aGVsbG8=\n",
    ];
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
    let value = read_overlay(text).expect("an overlay");
    let annotations = json!({
        "istio.io/rev": "default",
        "kubectl.kubernetes.io/default-container": "app",
        "traffic.sidecar.istio.io/includeInboundPorts": "80,90",
    });
    assert_eq!(value["metadata"]["annotations"], annotations);
    assert_eq!(value["spec"]["initContainers"], json!([]));
    let env = &value["spec"]["containers"][0]["env"][0];
    assert_eq!(env["value"], "[\n    {\"containerPort\":80}\n]");
    assert_eq!(
        value["spec"]["volumes"],
        json!([{"emptyDir": null, "name": "workload-socket"}])
    );
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
    assert!(
        error.to_string().contains("ports[0].containerPort of type int64"),
        "{error}"
    );
    let error = read_overlay("metadata: {annotations: {a: 1}}").expect_err("a number");
    assert!(
        error
            .to_string()
            .contains("metadata.annotations.a of type string"),
        "{error}"
    );
    let error = read_overlay("spec: {containers: {name: a}}").expect_err("a map");
    assert!(error.to_string().contains("cannot unmarshal object"), "{error}");
}

#[test]
fn overlays_keep_directives_and_lose_unknown_fields() {
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
    assert_eq!(
        documents[0].value["spec"]["jobTemplate"]["spec"]["template"]["spec"]["nodeName"],
        "5"
    );
}

#[test]
fn documents_keep_their_bytes() {
    let text =
        "# head\n---\na: 1\r\n--- # second\r\nb: |\n  ---x\n\n---\n---   \n--- {c: 3}\n...\n---\n# tail";
    let documents = read_documents(text.as_bytes()).expect("a file");
    let parts: Vec<_> = documents
        .iter()
        .map(|d| (d.separator, d.body, d.value.clone()))
        .collect();
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
    assert_eq!(
        read_documents("\u{feff}---\na: 1\n".as_bytes()).expect("a mark")[0].value,
        json!({"a": 1})
    );
}

#[test]
fn errors_name_the_line_of_the_file() {
    let error = read_documents(b"a: 1\n---\nb: 2\nc: [\n").expect_err("open");
    assert!(error.line >= 4, "{error}");
    let error = read_documents(b"a: 1\nb: \xff\n").expect_err("not UTF-8");
    assert_eq!(
        (error.line, error.column, &error.problem),
        (2, 4, &Problem::NotUtf8)
    );
    let error = read("a: 1\nb: !!int x\n").expect_err("no integer");
    assert_eq!((error.line, error.column), (2, 10), "{error}");
    let error = read("a: .nan").expect_err("no number");
    assert!(error.to_string().contains(".nan is no number in JSON"), "{error}");
    assert_eq!(
        read("a: 1\n---\nb: 2\n").expect_err("two").problem,
        Problem::ManyDocuments
    );
    assert_eq!(read("---\na: 1\n---\n"), Ok(json!({"a": 1})));
}

fn quickly<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = std::time::Instant::now();
    let done = work();
    assert!(
        start.elapsed() < std::time::Duration::from_secs(5),
        "{what}: {:?}",
        start.elapsed()
    );
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
    assert_eq!(error.problem, Problem::TooManyNodes);

    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(1000));
    let error = quickly("long aliases", || read(&long)).expect_err("long aliases");
    assert_eq!(error.problem, Problem::TooManyNodes);

    for deep in [
        "[".repeat(1_000_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
    ] {
        quickly("nesting", || read(&deep)).expect_err("nesting");
        quickly("nesting", || scalar_spans(&deep)).expect_err("nesting");
    }
    let nested = format!("{}{}", "[".repeat(101), "]".repeat(101));
    assert_eq!(read(&nested).expect_err("101 levels").problem, Problem::TooDeep);
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    read(&nested).expect("100 levels");

    let large = "a: b\n".repeat(2 << 20);
    assert_eq!(
        quickly("10 MB", || read_documents(large.as_bytes()))
            .expect_err("10 MB")
            .problem,
        Problem::TooLong(large.len())
    );
    let many = "- a\n".repeat((6 << 20) / 4);
    assert_eq!(
        quickly("many", || read(&many)).expect_err("many").problem,
        Problem::TooManyNodes
    );
}

#[test]
fn spans_cover_scalars_and_nothing_else() {
    let text = "a: \"é x\" # note\nb: &n [ *m, 'it''s', plain text ]\nc: |-\n  one\n  two\nd:\ne: !!str 5\nf: last\n";
    let text = text.replace("*m, ", "");
    let spans = scalar_spans(&text).expect("spans");
    let slices: Vec<_> = spans.iter().map(|span| &text[span.clone()]).collect();
    let within = |part: &str| {
        let start = text.find(part).expect(part);
        within_one_scalar(&spans, &(start..start + part.len()))
    };
    for part in [
        "a",
        "\"é x\"",
        "é x",
        "x",
        "it''s",
        "plain text",
        "one\n  two",
        "two",
        "last",
        "5",
    ] {
        assert!(within(part), "{part:?} in {slices:?}");
    }
    for part in [
        "a: ",
        "# note",
        "note",
        "&n",
        "[",
        "'it''s', plain",
        "c: |",
        "two\nd",
        "!!str",
        "!!str 5",
        "t ]",
    ] {
        assert!(!within(part), "{part:?} in {slices:?}");
    }
}

#[test]
fn a_value_that_breaks_out_is_seen() {
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

#[test]
fn writing_looks_like_kubectl() {
    let value = json!({
        "apiVersion": "v1",
        "metadata": {"annotations": {"a/b": "yes", "empty": ""}, "labels": {}},
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
  labels: {}
spec:
  containers:
  - name: a
    args:
    - -u
    - --x
    - '*'
    - 10.0.0.0/8
    - \"1337\"
    - 'a: b'
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
    for text in [
        "yes",
        "No",
        "on",
        "OFF",
        "y",
        "N",
        "true",
        "null",
        "~",
        "",
        "1_000",
        "12:30",
        "190:20:30.5",
        "2001-01-01",
        "2001-12-14t21:59:43.10-05:00",
        "=",
        "<<",
        "1",
        "-1",
        "+1",
        "1e3",
        "0x10",
        "012",
        "0o7",
        "0b1",
        ".5",
        "1.",
        ".inf",
        "-.inf",
        ".NaN",
        "- a",
        "-",
        "---",
        "...",
        "a: b",
        "a #b",
        "a:",
        " a",
        "a ",
        "*a",
        "&a",
        "!a",
        "@a",
        "`a",
        "%a",
        "{a}",
        "[a]",
        "? a",
        "|",
        ">",
        "'a'",
        "\"a\"",
        "a\tb",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "\u{7f}",
        "a\r\nb",
        "1__0",
        "0x_1",
    ] {
        let written = write(&json!(text));
        assert!(written.starts_with(['"', '\'']), "{text:?}: {written}");
        assert_eq!(read(&written), Ok(json!(text)));
    }
    for text in [
        "a", "a b", "a:b", "a#b", "-u", "--a=b", "10.0.0.1", "v1.2.3", "/a/b", "a=b", "$(VAR)", "<none>",
        "é", "1.2.3",
    ] {
        assert_eq!(write(&json!(text)), format!("{text}\n"));
    }
}
