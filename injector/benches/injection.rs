//! What an injection costs: in process, from the decision to the injected pod, and as a whole process.
//!
//! `make bench-injector` runs it, built as the program is and with its allocator. With `CONFORMANCE_DATA`
//! Istio's own config is measured too.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench fails by panicking, and criterion's macros make the items"
)]

#[path = "../tests/builtin/mod.rs"]
mod builtin;
#[path = "../tests/reviews/mod.rs"]
mod reviews;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injector, Options, functions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Istio's own config, where it is at hand.
fn istio() -> Option<(Sources, PathBuf)> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    let folder = std::env::var_os("CONFORMANCE_DATA").map_or_else(beside, PathBuf::from).join("istio");
    let source = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        Some(Source { name: name.to_owned(), text })
    };
    let sources = Sources {
        config: Some(source("inject-config.yaml")?),
        values: source("inject-values.json"),
        mesh: source("mesh-config.yaml"),
    };
    Some((sources, folder))
}

fn with_variables(count: usize) -> Value {
    let env: Vec<Value> =
        (0..count).map(|n| json!({"name": format!("V{n}"), "value": format!("x{n}")})).collect();
    let mut pod = builtin::deployment();
    pod["spec"]["containers"][0]["env"] = json!(env);
    pod
}

fn with_label(pod: &Value, number: Option<u32>) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["labels"]["app"] = json!(format!("web-{}", number.unwrap_or_default()));
    pod
}

fn in_process(criterion: &mut Criterion) {
    let mut injectors = vec![("built-in", builtin::injector())];
    if let Some((sources, _)) = istio() {
        let settings = sources.load(&functions(|_| None)).unwrap();
        let options = Options::default();
        injectors.push(("Istio's", Injector::new(settings, options)));
        criterion.bench_function("load Istio's config", |bench| {
            bench.iter(|| sources.load(&functions(|_| None)).unwrap())
        });
    }
    criterion.bench_function("load the built-in config", |bench| bench.iter(builtin::injector));
    for (name, injector) in &injectors {
        for variables in [0, 2000] {
            let pod = with_variables(variables);
            let title = format!("pod with {variables} variables, {name} config");
            // Every pod has another label, so that none gets the overlay of another.
            let mut numbers = 0..;
            let mut other = || with_label(&pod, numbers.next());
            criterion.bench_function(&title, |bench| {
                bench.iter_batched(
                    &mut other,
                    |pod| builtin::inject(injector, &pod).unwrap(),
                    BatchSize::SmallInput,
                )
            });
        }
    }
}

/// A whole review, from bytes to bytes.
fn admission_review(criterion: &mut Criterion) {
    let istio = istio().map(|(sources, _)| {
        let settings = sources.load(&functions(|_| None)).unwrap();
        Injector::new(settings, Options::default())
    });
    let injectors = [Some(("built-in", builtin::injector())), istio.map(|injector| ("Istio's", injector))];
    for (name, injector) in injectors.into_iter().flatten() {
        let admission = reviews::admission(injector);
        for variables in [0, 2000] {
            let pod = with_variables(variables);
            let mut numbers = 0..;
            let mut other = || reviews::review(&reviews::sent(&with_label(&pod, numbers.next()))).to_string();
            let title = format!("admission review, {variables} variables, {name} config");
            criterion.bench_function(&title, |bench| {
                let send = |body: String| reviews::send_bytes(&admission, body.as_bytes());
                bench.iter_batched(&mut other, send, BatchSize::SmallInput)
            });
        }
    }
}

/// Deployments in one file, as YAML.
fn deployments(count: usize) -> String {
    let object = |n: usize| {
        let template = builtin::deployment();
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("web-{n}")},
               "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}})
    };
    (0..count).map(|n| format!("---\n{}\n", object(n))).collect()
}

fn whole_process(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    for count in [1, 200] {
        let file = folder.path().join(format!("{count}.yaml"));
        std::fs::write(&file, deployments(count)).unwrap();
        let title = format!("process: {count} documents, built-in config");
        criterion.bench_function(&title, |bench| bench.iter(|| run(&file, None)));
        if let Some((_, istio)) = istio() {
            let title = format!("process: {count} documents, Istio's config");
            criterion.bench_function(&title, |bench| bench.iter(|| run(&file, Some(&istio))));
        }
    }
}

fn run(file: &Path, istio: Option<&Path>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidecar-injector"));
    command.arg("inject").arg("-f").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(folder) = istio {
        command.arg("--inject-config").arg(folder.join("inject-config.yaml"));
        command.arg("--values").arg(folder.join("inject-values.json"));
        command.arg("--mesh-config").arg(folder.join("mesh-config.yaml"));
    }
    assert!(command.status().unwrap().success());
}

criterion_group!(benches, in_process, admission_review, whole_process);
criterion_main!(benches);
