//! The plugin as a process, where no network namespace is needed: every command with good and bad variables
//! and standard input. It never panics, and prints one JSON document, or nothing where the command has no
//! result.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod any_input;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod input;
mod logs;
mod output;

use common::{PluginOutput, call, plugin};
use serde_json::{Value, json};

const GOOD: [(&str, &str); 4] = [
    ("CNI_CONTAINERID", "c1"),
    ("CNI_NETNS", "/nonexistent/ns"),
    ("CNI_IFNAME", "eth0"),
    ("CNI_ARGS", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"),
];

fn run(command: &str, input: &str) -> PluginOutput {
    let variables = [&[("CNI_COMMAND", command)], &GOOD[..]].concat();
    call(plugin(), &variables, input.as_bytes())
}

/// A configuration with a run directory of its own.
fn conf(run_dir: &tempfile::TempDir, more: &Value) -> Value {
    let mut conf = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "istio-cni", "cni_agent_run_dir": run_dir.path(),
        "prevResult": {"cniVersion": "1.1.0"}
    });
    conf.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    conf
}
