//! Files of many documents: read back, in one piece, with the place of each problem.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidecar-injector"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A Deployment of about 200 KiB.
fn padded(number: usize) -> String {
    let name = format!("{{name: web-{number}, n");
    format!("{}# {}\n", DEPLOYMENT.replace("{name: web, n", &name), "x".repeat(200 << 10))
}

fn many(count: usize) -> String {
    (0..count).map(|number| format!("---\n{}", padded(number))).collect()
}

#[test]
fn a_file_of_any_size_is_injected_from_a_file_and_from_a_pipe() {
    let folder = Folder::new();
    let text = many(60);
    assert!(text.len() > 12_000_000);
    let file = folder.file("large.yaml", &text);
    let from_file = program(&["inject", "-q", "-f", &file]).output().unwrap();
    assert!(from_file.status.success(), "{}", String::from_utf8_lossy(&from_file.stderr));
    let mut child = program(&["inject", "-q", "-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let from_pipe = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(from_file.stdout, from_pipe.stdout);
    // Each document is what it is in a file of its own.
    let injected = String::from_utf8(from_file.stdout).unwrap();
    let documents: Vec<&str> = injected.split("---\n").skip(1).collect();
    assert_eq!(documents.len(), 60);
    for number in [0, 1, 30, 59] {
        let alone = run(&["inject", "-f", &folder.file("one.yaml", &padded(number))]).unwrap().text;
        assert_eq!(documents[number], alone, "{number}");
    }
    // It is read back: nothing changes, also as a file.
    let once = folder.file("once.yaml", &injected);
    let target = folder.path("twice.yaml");
    let again = program(&["inject", "-q", "-f", &once, "-o", target.to_str().unwrap()]).output().unwrap();
    assert!(again.status.success() && again.stdout.is_empty());
    assert_eq!(std::fs::read_to_string(target).unwrap(), injected);
    let checked = run(&["check", "--output", "json", "-f", &once]).unwrap();
    let text = checked.large.map_or(checked.text, |file| {
        use std::io::Seek as _;
        let mut file = file;
        file.rewind().unwrap();
        std::io::read_to_string(file).unwrap()
    });
    let results: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(results.len(), 60);
    assert!(results.iter().all(|result| result["injected"] == true));
}

/// `kubectl apply` must not get a part.
#[test]
fn with_a_problem_in_the_last_document_nothing_is_written() {
    let folder = Folder::new();
    let bad = DEPLOYMENT.replace("{labels: {app: web}}", "{annotations: {status.sidecar.istio.io/port: x}}");
    let file = folder.file("large.yaml", &format!("{}---\n{bad}", many(30)));
    let target = folder.path("out.yaml");
    std::fs::write(&target, "before").unwrap();
    for to in ["-", target.to_str().unwrap()] {
        let failed = program(&["inject", "-f", &file, "-o", to]).output().unwrap();
        assert_eq!((failed.status.code(), failed.stdout.as_slice()), (Some(65), &b""[..]));
        let error = String::from_utf8(failed.stderr).unwrap();
        // Each has a separator and 11 lines; the last one begins with a comment.
        assert!(error.contains("large.yaml, document 31 (line 363): Deployment \"shop/web\": "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert_eq!(std::fs::read_to_string(target).unwrap(), "before");
    let broken = folder.file("broken.yaml", &format!("{}---\na: [\n", many(3)));
    let failure = run(&["inject", "-f", &broken]).unwrap_err();
    assert!(failure.problems[0].contains("broken.yaml, document 4: yaml: line 3"), "{failure}");
}

#[test]
fn json_of_several_documents_is_read_back() {
    let folder = Folder::new();
    let file = folder.file("all.yaml", &format!("{SERVICE}---\n{DEPLOYMENT}---\n{DEPLOYMENT}"));
    let json = run(&["inject", "-o", "json", "-f", &file]).unwrap().text;
    // As kubectl reads it: one JSON text after the other.
    let values: Vec<Value> =
        serde_json::Deserializer::from_str(&json).into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(values.len(), 3);
    let saved = folder.file("all.json", &json);
    for arguments in [&["inject", "-f", &saved][..], &["inject", "-o", "json", "-f", &saved]] {
        let again = run(arguments).unwrap();
        assert_eq!(again.text, json, "{arguments:?}");
        assert_eq!(again.summary.len(), 3);
    }
    assert_eq!(run(&["check", "--summary", "-f", &saved]).unwrap().text.lines().count(), 2);
    let yaml = run(&["inject", "-f", &file, "-o", "yaml"]).unwrap().text;
    assert_eq!(run(&["inject", "-f", &saved, "-o", "yaml"]).unwrap().text, yaml);
    let out = run(&["uninject", "-f", &saved]).unwrap().text;
    assert!(!out.contains("---") && !out.contains("istio-proxy"), "{out}");
    assert_eq!(serde_json::Deserializer::from_str(&out).into_iter::<Value>().count(), 3);
    // One that is not changed keeps its bytes.
    let texts = format!("{{\"kind\":   \"Service\", \"apiVersion\": \"v1\"}}{}\n\n", values[1]);
    let file = folder.file("dense.json", &texts);
    assert_eq!(run(&["inject", "-f", &file]).unwrap().text, format!("{}\n{:#}\n", &texts[..41], values[1]));
}

#[test]
fn a_folder_with_a_kustomization_needs_kubectl_kustomize() {
    let folder = Folder::new();
    let path = folder.path("");
    let path = path.to_str().unwrap().trim_end_matches('/');
    folder.file("d.yaml", DEPLOYMENT);
    let text = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [d.yaml]\n";
    folder.file("kustomization.yaml", text);
    let hint = format!("{path}: its kustomization is not applied: run kubectl kustomize first");
    let notes = run(&["inject", "-f", path]).unwrap().notes;
    assert!(!notes.iter().any(|note| note.contains("kustomization")), "{notes:?}");
    folder.file("kustomization.yaml", &format!("{text}patches: [{{path: p.yaml}}]\n"));
    for command in ["inject", "uninject", "check"] {
        let notes = run(&[command, "-f", path]).unwrap().notes;
        assert!(notes.iter().any(|note| note.starts_with(&format!("warning: {hint}"))), "{notes:?}");
    }
    folder.file("p.yaml", "spec: {replicas: 3}\n");
    for command in ["inject", "uninject", "check"] {
        let failure = run(&[command, "-f", path]).unwrap_err();
        assert!(failure.problems.last().unwrap().starts_with(&hint), "{failure}");
    }
}

/// Go reads `null` as the empty string where a map has strings.
#[test]
fn a_null_annotation_is_written_as_empty() {
    let folder = Folder::new();
    let with = |value: &str| {
        let map = format!("{{annotations: {{a/b: {value}, sidecar.istio.io/proxyCPU: {value}}}}}");
        run(&["inject", "-f", &folder.file("a.yaml", &DEPLOYMENT.replace("{labels: {app: web}}", &map))])
    };
    assert_eq!(with("null").unwrap_err(), with("''").unwrap_err());
    let plain = DEPLOYMENT.replace("{labels: {app: web}}", "{annotations: {a/b: null}}");
    let text = run(&["inject", "-f", &folder.file("b.yaml", &plain)]).unwrap().text;
    assert!(text.contains("        a/b: \"\"\n"), "{text}");
}
