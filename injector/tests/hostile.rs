//! Bad input: a clear error in bounded time, and no value that escapes from where it is printed.

use crate::builtin::{self, deployment, injector, with};
use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment, Exit};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectError, Injector, Options, functions};
use std::time::{Duration, Instant};

/// A template that prints user text without quotes, as people write them.
fn careless(template: &str) -> Injector {
    let config =
        json!({"policy": "enabled", "defaultTemplates": ["t"], "templates": {"t": template}}).to_string();
    let sources =
        Sources { config: Some(Source { name: "config".to_owned(), text: config }), ..Sources::default() };
    Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default())
}

fn inject(injector: &Injector, pod: &Value) -> Result<Value, InjectError> {
    builtin::inject(injector, pod).map(|injected| injected.pod)
}

#[test]
fn a_value_cannot_become_structure() {
    let careless = careless(
        "metadata:\n  annotations:\n    copy: {{ index .ObjectMeta.Annotations `a` }}\n    quoted: \"{{ index .ObjectMeta.Annotations `b` }}\"\n",
    );
    for (key, value) in [
        ("a", "x\nspec:\n  hostNetwork: true"),
        ("a", "x\n    other: y"),
        ("a", "{p: q}"),
        ("a", "[p]"),
        ("a", "x # comment"),
        ("a", "&anchor x"),
        ("a", "!!str x"),
        ("a", "x\u{0}y"),
        ("b", "x\", evil: \"y"),
        ("b", "x\"\n    evil: \"y"),
    ] {
        let pod = with(&deployment(), &json!({"a": "ok", "b": "ok", key: value}));
        match inject(&careless, &pod) {
            Err(InjectError::ValueChangesStructure { origin, .. }) => {
                assert_eq!(origin, format!("annotation {key}"), "{value:?}")
            }
            other => panic!("{key}: {value:?}: {other:?}"),
        }
    }
    for value in ["x", "x y", "it's", "1", "true", "a,b", "100%", "x:y", ""] {
        let pod = with(&deployment(), &json!({"a": "ok", "b": value}));
        let injected = inject(&careless, &pod).unwrap_or_else(|error| panic!("{value:?}: {error}"));
        assert_eq!(injected["metadata"]["annotations"]["quoted"], value);
    }
}

#[test]
fn the_built_in_templates_hold_any_text() {
    let injector = injector();
    for value in ["x\ny", "\"", "'", "a: b", "{", "\\", "# x", "\u{1F600}\u{85}", "{{ .Values }}"] {
        let pod = with(&deployment(), &json!({"sidecar.istio.io/logLevel": value}));
        let injected = inject(&injector, &pod).unwrap_or_else(|error| panic!("{value:?}: {error}"));
        let proxy = &injected["spec"]["initContainers"][1];
        assert_eq!(proxy["args"][4], format!("--proxyLogLevel={value}"), "{value:?}");
    }
}

#[test]
fn templates_without_end_are_stopped() {
    let start = Instant::now();
    for template in [
        "{{ define `x` }}{{ template `x` . }}{{ end }}{{ template `x` . }}",
        "{{ range $i, $_ := until 100000000 }}{{ range until 100000000 }}x{{ end }}{{ end }}",
        "{{ $x := `xxxxxxxxxxxxxxxx` }}{{ range until 64 }}{{ $x = printf `%s%s` $x $x }}{{ end }}",
        "{{ repeat 1000000000 `x` }}",
    ] {
        match inject(&careless(template), &deployment()) {
            Err(InjectError::Render(error)) => assert!(error.line > 0, "{error}"),
            other => panic!("{template}: {other:?}"),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_template_that_makes_no_pod_is_reported_with_its_line() {
    let error = inject(&careless("metadata:\n  labels:\n    x: {{ len .Spec.Containers }}\n"), &deployment())
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("template t") && text.contains("labels"), "{text}");
    let error = inject(&careless("a: [\nb: {{ .Revision }}\n"), &deployment()).unwrap_err().to_string();
    assert!(error.contains("template t: its output is not a pod: yaml: line "), "{error}");
}

fn run(bytes: &[u8]) -> Result<cli::Output, cli::Failure> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file.as_file(), bytes).unwrap();
    let path = file.path().to_str().unwrap();
    cli::run(["sidecar-injector", "inject", "-f", path].map(Into::into), &Environment::default())
}

#[test]
fn input_that_cannot_be_read_is_an_error_in_bounded_time() {
    let bomb = (0..9).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        format!("{text}a{}: &a{} [{}]\n", n + 1, n + 1, vec![format!("*a{n}"); 9].join(","))
    });
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let start = Instant::now();
    for (what, bytes) in [
        ("truncated JSON", br#"{"apiVersion": "v1", "kind": "Pod", "spec": {"#.to_vec()),
        ("YAML bomb", bomb.into_bytes()),
        ("10 MB", vec![b'x'; 10 << 20]),
        ("deep nesting", deep.into_bytes()),
        ("not UTF-8", b"kind: \xff\xfe".to_vec()),
    ] {
        let failure = run(&bytes).expect_err(what);
        assert_eq!(failure.exit, Exit::Data, "{what}");
        assert_eq!(failure.problems.len(), 1, "{what}: {failure}");
        assert!(failure.to_string().len() < 600, "{what}: {failure}");
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_huge_annotation_is_shown_in_part() {
    let pod = with(&deployment(), &json!({"status.sidecar.istio.io/port": "9".repeat(200_000)}));
    let error = inject(&injector(), &pod).unwrap_err().to_string();
    assert!(error.len() < 400 && error.contains("status.sidecar.istio.io/port"), "{} bytes", error.len());
}

#[test]
fn odd_shapes_are_errors_or_pass_through_but_never_a_panic() {
    let injector = injector();
    for pod in [
        json!({}),
        json!({"spec": {}}),
        json!({"spec": {"containers": 7}}),
        json!({"spec": {"containers": [7, null, "x", {}]}}),
        json!({"metadata": 7, "spec": {"containers": [{"name": "a", "env": 7, "ports": "x", "livenessProbe": []}]}}),
        json!({"metadata": {"annotations": [], "labels": "x"}, "spec": {"initContainers": {}, "volumes": null}}),
        json!({"metadata": {"annotations": {"sidecar.istio.io/status": "{\"containers\":[\"a\"]}", "proxy.istio.io/overrides": "{\"containers\":[{\"name\":\"istio-proxy\",\"image\":7}]}"}}, "spec": {"containers": [{"name": "a"}]}}),
    ] {
        // Whether it is refused is not the point here.
        let _ = inject(&injector, &pod);
    }
}
