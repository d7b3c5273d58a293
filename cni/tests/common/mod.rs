//! A container runtime in small: it runs the plugin, or a list of plugins, as libcni does.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::thread;

use netlab::Namespace;
use serde_json::{Map, Value, json};

/// Where Debian's package containernetworking-plugins has its programs.
pub(crate) const DEBIAN: &str = "/usr/lib/cni";

/// What a plugin printed.
#[derive(Clone, Debug)]
pub(crate) struct PluginOutput {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl PluginOutput {
    /// The error; there must be one, with this code. Returns its message.
    #[track_caller]
    pub(crate) fn error(&self, code: u64) -> String {
        assert!(!self.success, "{self:?}");
        let error: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}"));
        assert_eq!(error["code"], code, "{self:?}");
        let text = error["msg"].as_str().unwrap();
        assert!(!text.is_empty() && text.chars().count() <= 300 && !text.contains('\n'), "{text}");
        text.to_owned()
    }

    /// What was printed by a command that succeeded.
    #[track_caller]
    pub(crate) fn printed(&self) -> &str {
        assert!(self.success, "{self:?}");
        &self.stdout
    }
}

/// Runs a program with these variables alone, and `PATH`.
pub(crate) fn call(program: &Path, variables: &[(&str, &str)], input: &[u8]) -> PluginOutput {
    let mut child = Command::new(program)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs {}: {error}", program.display()));
    let mut stdin = child.stdin.take().unwrap();
    let Output { status, stdout, stderr } = thread::scope(|scope| {
        scope.spawn(move || {
            // A plugin that ends early has said why.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    PluginOutput { success: status.success(), stdout: text(stdout), stderr: text(stderr) }
}

/// Our plugin: the program that `ISTIO_CNI_PROGRAM` names, as it ships, or the one that cargo has built.
pub(crate) fn plugin() -> &'static Path {
    static PROGRAM: LazyLock<String> =
        LazyLock::new(|| netlab::process::under_test("ISTIO_CNI_PROGRAM", env!("CARGO_BIN_EXE_istio-cni")));
    Path::new(PROGRAM.as_str())
}

/// One attachment.
pub(crate) struct Pod {
    pub(crate) container: String,
    pub(crate) interface: &'static str,
    pub(crate) netns: Namespace,
    pub(crate) args: String,
    /// Annotations that the runtime passes; `None`: it does not.
    pub(crate) annotations: Option<Value>,
}

impl Pod {
    /// A pod with these annotations, beside those that kubelet sets.
    pub(crate) fn new(container: &str, annotations: &[(&str, &str)]) -> Self {
        let mut all: Map<String, Value> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        all.insert("kubernetes.io/config.source".to_owned(), json!("api"));
        Self {
            container: container.to_owned(),
            interface: "eth0",
            netns: Namespace::with_loopback(),
            args: format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={container};K8S_POD_UID=u-{container}"
            ),
            annotations: Some(Value::Object(all)),
        }
    }

    /// Calls a program of the list.
    pub(crate) fn call(&self, program: &Path, command: &str, input: &Value) -> PluginOutput {
        let netns = self.netns.path();
        let variables = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", &self.container),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", self.interface),
            ("CNI_ARGS", &self.args),
            ("CNI_PATH", DEBIAN),
        ];
        call(program, &variables, input.to_string().as_bytes())
    }

    /// Calls our plugin alone.
    pub(crate) fn plugin(&self, command: &str, input: &Value) -> PluginOutput {
        let mut input = input.clone();
        if let Some(annotations) = &self.annotations {
            input["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations": annotations});
        }
        self.call(plugin(), command, &input)
    }
}

/// Injected, to be captured by a CNI plugin.
pub(crate) const INJECTED: (&str, &str) =
    ("sidecar.istio.io/status", r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"]}"#);
