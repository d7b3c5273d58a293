//! What Go's own `text/template` and sprig print for several hundred snippets, and what ours does.
//!
//! `data/expected.jsonl` is written by `data/generator` (see its head) from `snippets.txt` and
//! `data.json`; Go is not needed to run this.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests read their data from files and say so when something is missing"
)]

use gotemplate::{EnumType, Field, Functions, IntType, Kind, Limits, Options, Schema, Template, Value};
use serde_json::Value as Json;
use std::path::Path;

static PORT: Schema = Schema {
    name: "main.Port",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str),
        Field::new("HostPort", "hostPort", Kind::Int32),
        Field::new("ContainerPort", "containerPort", Kind::Int32).always(),
        Field::new("Protocol", "protocol", Kind::Str),
    ],
};

static CONTAINER: Schema = Schema {
    name: "main.Container",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str).always(),
        Field::new("Image", "image", Kind::Str),
        Field::new("Ports", "ports", Kind::List(&Kind::Struct(&PORT))),
        Field::new("Privileged", "privileged", Kind::Ptr(&Kind::Bool)),
        Field::new("Count", "count", Kind::Ptr(&Kind::Int64)),
    ],
};

static POD: Schema = Schema {
    name: "main.Pod",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str),
        Field::new("Labels", "labels", Kind::Map(&Kind::Str)),
        Field::new("Containers", "containers", Kind::List(&Kind::Struct(&CONTAINER))).always(),
        Field::new("One", "one", Kind::Ptr(&Kind::Struct(&CONTAINER))),
        Field::new("None", "none", Kind::Ptr(&Kind::Struct(&CONTAINER))),
        Field::new("Grace", "grace", Kind::Int64),
        Field::new("Ready", "ready", Kind::Bool),
    ],
};

static MODE: EnumType =
    EnumType { name: "main.Mode", values: &[("REDIRECT", 0), ("TPROXY", 1), ("NONE", 2)] };

fn root(data: &Json) -> Value<'_> {
    Value::record(
        "main.Root",
        vec![
            ("V", Value::any_map(data["V"].as_object())),
            ("M", Value::str_map(data["M"].as_object(), None)),
            ("NilM", Value::str_map(None, None)),
            ("Pod", Value::of_struct(&POD, data["Pod"].as_object(), None)),
            ("Mode", Value::Enum(&MODE, 1)),
            ("Zero", Value::Enum(&MODE, 0)),
            ("N", Value::Int(64, IntType::Int64)),
            ("I", Value::Int(5, IntType::Int)),
        ],
    )
}

fn render(text: &str, functions: &Functions, data: &Json) -> Result<String, String> {
    let template = Template::parse("t", text, functions, Options::default()).map_err(|e| e.to_string())?;
    template.render(root(data), Limits::default()).map(|r| r.text).map_err(|e| e.to_string())
}

/// What Go says after where it happened.
fn meaning(error: &str) -> &str {
    let tail = error.split(">: ").last().unwrap_or(error);
    // Errors of the parser: `template: t:1: …`.
    let parser = tail.strip_prefix("template: t:").and_then(|rest| rest.split_once(": "));
    parser.map_or(tail, |(_, tail)| tail)
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn same_as_go() {
    let data: Json = serde_json::from_str(&read("data.json")).unwrap();
    let mut functions = Functions::builtin();
    functions.add_sprig();
    let mut wrong = Vec::new();
    let (mut count, mut errors, mut worded) = (0, 0, 0);
    for line in read("expected.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let (name, text) = (case["name"].as_str().unwrap(), case["template"].as_str().unwrap());
        count += 1;
        let ours = render(text, &functions, &data);
        match (case["output"].as_str(), case["error"].as_str(), ours) {
            (Some(go), _, Ok(ours)) if go == ours => {}
            (_, Some(go), Err(ours)) => {
                errors += 1;
                if ours.ends_with(meaning(go)) {
                    worded += 1;
                } else {
                    println!("worded differently: {name} {text:?}\n   go: {}\n ours: {ours}", meaning(go));
                }
            }
            (go, error, ours) => {
                wrong.push(format!("{name} {text:?}\n   go: {go:?} {error:?}\n ours: {ours:?}"));
            }
        }
    }
    println!("{count} snippets, {errors} of them errors, {worded} in Go's very words");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 600 && worded > 130, "{count} snippets, {worded} errors in Go's words");
}

#[test]
fn templates_are_shared_between_threads() {
    fn shareable<T: Send + Sync>() {}
    shareable::<Template>();
    shareable::<Functions>();
}
