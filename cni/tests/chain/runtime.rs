//! A node with a list of plugins, run in their order as libcni does: each gets the result of the one before,
//! and the capabilities that its entry names.

use std::path::Path;

use netlab::Namespace;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{DEBIAN, PluginOutput, Pod, plugin};

/// A node: its namespace, its plugins and their state.
pub(crate) struct Node {
    pub(crate) namespace: Namespace,
    pub(crate) folder: TempDir,
    /// The list; [`Node::new`] has ours last.
    pub(crate) plugins: Vec<Value>,
}

/// The gateway of the pods.
pub(crate) const GATEWAY_V4: &str = "10.88.0.1";
pub(crate) const GATEWAY_V6: &str = "fd00:88::1";

impl Node {
    /// A node whose pods are on a bridge; `backend` is ours.
    pub(crate) fn new(backend: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ipam = json!({
            "type": "host-local", "dataDir": folder.path().join("ipam"),
            "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
        });
        let plugins = vec![
            json!({"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": ipam}),
            json!({"type": "portmap", "capabilities": {"portMappings": true}}),
            json!({
                "type": "istio-cni", "capabilities": {"io.kubernetes.cri.pod-annotations": true},
                "cni_agent_run_dir": folder.path().join("run"), "backend": backend,
                "capture": {"dual_stack": true},
                // Others use the processors, too: no verdict may depend on how long a command takes.
                "deadline_ms": 120_000
            }),
        ];
        Self { namespace: Namespace::with_loopback(), folder, plugins }
    }

    /// Sets a key of our entry.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.plugins.last_mut().unwrap()[key] = value;
    }

    /// ADD by all plugins; the result.
    #[track_caller]
    pub(crate) fn add(&self, pod: &Pod) -> Value {
        let added = self.try_add(pod);
        serde_json::from_str(added.printed()).unwrap()
    }

    /// ADD by all plugins up to the first that fails.
    pub(crate) fn try_add(&self, pod: &Pod) -> PluginOutput {
        let mut result = Value::Null;
        let mut last = None;
        for entry in &self.plugins {
            let output = self.run(entry, pod, "ADD", &result);
            if !output.success {
                return output;
            }
            result = serde_json::from_str(&output.stdout).unwrap();
            last = Some(output);
        }
        last.unwrap()
    }

    /// DEL by all plugins, from the last to the first; all succeed.
    #[track_caller]
    pub(crate) fn delete(&self, pod: &Pod, result: &Value) {
        for entry in self.plugins.iter().rev() {
            self.run(entry, pod, "DEL", result).printed();
        }
    }

    /// A command by our plugin alone.
    pub(crate) fn ours(&self, pod: &Pod, command: &str, result: &Value) -> PluginOutput {
        let ours = self.plugins.iter().find(|entry| entry["type"] == "istio-cni").unwrap();
        self.run(ours, pod, command, result)
    }

    /// Our configuration, for a command without pod.
    pub(crate) fn configuration(&self) -> Value {
        let mut input = self.plugins.last().unwrap().clone();
        input["name"] = json!("pods");
        input["cniVersion"] = json!("1.1.0");
        input
    }

    /// The names of our state files.
    pub(crate) fn state(&self) -> Vec<String> {
        let Ok(files) = std::fs::read_dir(self.folder.path().join("run/state")) else { return Vec::new() };
        let mut names: Vec<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn run(&self, entry: &Value, pod: &Pod, command: &str, result: &Value) -> PluginOutput {
        let mut input = entry.clone();
        input["name"] = json!("pods");
        input["cniVersion"] = json!("1.0.0"); // the newest that Debian's plugins know
        if !result.is_null() {
            input["prevResult"] = result.clone();
        }
        let kind = entry["type"].as_str().unwrap();
        let ours = kind == "istio-cni";
        input["runtimeConfig"] = match (&pod.annotations, kind) {
            (Some(annotations), "istio-cni") => json!({"io.kubernetes.cri.pod-annotations": annotations}),
            (_, "portmap") => {
                json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]})
            }
            _ => json!({}),
        };
        let program = if ours { plugin().to_owned() } else { Path::new(DEBIAN).join(kind) };
        self.namespace.run(|| pod.call(&program, command, &input))
    }
}
