//! The options of `install-cni` and `istio-cni uninstall`: one table, from which `--help` is made.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::error::InstallError;
use super::platform::{PLATFORMS, Platform};
use super::splice::TYPE;
use crate::netconf::{POD_ANNOTATIONS, RUN_DIR};

/// One option: name, value if it takes one, what it does.
type Row = (&'static str, Option<&'static str>, &'static str);

const COMMON: [Row; 6] = [
    ("platform", Some("NAME"), "directories of default, gke, k3s, microk8s or openshift [default: default]"),
    ("net-dir", Some("DIR"), "directory of network configurations [default: that of the platform]"),
    ("bin-dir", Some("DIR"), "directory of the plugins' programs [default: that of the platform]"),
    ("run-dir", Some("DIR"), "directory of the plugin's state [default: /var/run/istio-cni]"),
    ("log-level", Some("LEVEL"), "error, warn, info or debug [default: info]"),
    ("help", None, "print this"),
];

const INSTALL: [Row; 15] = [
    ("once", None, "install, verify, and end"),
    (
        "drop-in",
        Some("WHEN"),
        "yes: a file of its own beside the list, for libcni 1.3 or later; no: edit the list; auto: yes if the runtime of the Node object \
         loads it (containerd 2.1, CRI-O 1.33), else no [default: auto]",
    ),
    (
        "replace-istio",
        None,
        "put program and entry in place of those of Istio's CNI in sidecar mode; otherwise they are refused",
    ),
    ("uninstall", None, "on SIGTERM, take entry and state out; without it they stay, as an upgrade needs it"),
    ("listen", Some("ADDRESS"), "address of /healthz and /readyz; empty: none [default: [::]:8000]"),
    (
        "node-name",
        Some("NAME"),
        "answer the plugin's questions about pods of this node, from the API server (the program install-cni only)",
    ),
    (
        "remove-taint",
        None,
        "remove the taint cni.istio.io/not-ready of the node when the agent is ready; needs --node-name",
    ),
    ("kubeconfig", Some("FILE"), "how to reach the API server [default: the pod's service account]"),
    (
        "exclude-namespaces",
        Some("NAMES"),
        "namespaces of which no pod is captured, by commas [default: kube-system]",
    ),
    ("pod-namespace", Some("NAME"), "namespace of the agent itself, whose pods are not captured"),
    ("backend", Some("NAME"), "backend of the plugin [default: chosen on the node]"),
    ("on-unknown", Some("fail|pass"), "pods that the plugin knows nothing of [default: fail]"),
    ("deadline-ms", Some("NUMBER"), "deadline of one call of the plugin [default: 5000]"),
    ("capture", Some("JSON"), "configuration key `capture` of the plugin"),
    ("no-dry-add", None, "skip the test run of the plugin in a temporary network namespace"),
];

const UNINSTALL: [Row; 2] = [
    ("binary", None, "remove the program too, unless a configuration or a cached result names it"),
    ("results-dir", Some("DIR"), "directory of cached results [default: /var/lib/cni/results]"),
];

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// Network configurations.
    pub net: PathBuf,
    /// Programs.
    pub bin: PathBuf,
    /// State.
    pub run: PathBuf,
}

/// How the plugin gets into the network's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The runtime's list is edited.
    List,
    /// A file in the network's drop-in directory.
    DropIn,
    /// A configuration of its own, which multus calls.
    Standalone,
}

/// `install-cni`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Where the files are.
    pub dirs: Dirs,
    /// How the plugin is called.
    pub placement: Placement,
    /// Whether a list becomes a drop-in file where the runtime loads that.
    pub drop_in_auto: bool,
    /// Our object of the list.
    pub entry: Value,
    /// Ends after the installation.
    pub once: bool,
    /// Uninstalls at the end.
    pub uninstall: bool,
    /// Address for probes.
    pub listen: Option<SocketAddr>,
    /// Whether ADD is tried.
    pub dry_add: bool,
    /// Whether program and entry of Istio's own plugin are replaced.
    pub replace_istio: bool,
    /// Which pods are reported to the plugin.
    pub pods: Option<PodsOptions>,
}

/// Which pods the agent reports to the plugin, and where it gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsOptions {
    /// The node's name.
    pub node: String,
    /// How to reach the API server; `None`: by the service account.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the taint of the node is removed.
    pub remove_taint: bool,
}

/// `istio-cni uninstall`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uninstall {
    /// Where the files are.
    pub dirs: Dirs,
    /// Whether the program goes too.
    pub binary: bool,
    /// What libcni keeps for DEL.
    pub results: PathBuf,
}

/// A command of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Installs.
    Install(Box<Install>),
    /// Uninstalls.
    Uninstall(Uninstall),
    /// Prints a text.
    Help(String),
}

/// Values of a flag, which is true without one: a DaemonSet takes them from a ConfigMap.
const TRUE: &str = "true";
const FALSE: &str = "false";

/// What was given, by name.
struct Given(BTreeMap<&'static str, String>);

impl Given {
    fn read(rows: &[Row], args: &[String]) -> Result<Self, InstallError> {
        let mut given = BTreeMap::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (arg.as_str(), None),
            };
            let row = name.strip_prefix("--").and_then(|name| rows.iter().find(|row| row.0 == name));
            let Some((name, takes, _)) = row else {
                return Err(InstallError::new(format!("unknown argument {arg:?}; see --help")));
            };
            let value = match (takes, value) {
                (Some(_), Some(value)) => value,
                (Some(what), None) => args
                    .next()
                    .cloned()
                    .ok_or_else(|| InstallError::new(format!("--{name}: missing value, expected {what}")))?,
                (None, None) => TRUE.to_owned(),
                (None, Some(value)) if [TRUE, FALSE].contains(&value.as_str()) => value,
                (None, Some(value)) => {
                    return Err(InstallError::new(format!(
                        "--{name}: {value:?} is not accepted, expected {TRUE}, {FALSE} or no value"
                    )));
                }
            };
            if given.insert(*name, value).is_some() {
                return Err(InstallError::new(format!("--{name}: given twice")));
            }
        }
        Ok(Self(given))
    }

    fn flag(&self, name: &str) -> bool {
        self.text(name) == Some(TRUE)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn one_of(&self, name: &str, accepted: &[&'static str]) -> Result<&'static str, InstallError> {
        let Some(text) = self.text(name) else { return Ok(accepted.first().copied().unwrap_or_default()) };
        accepted.iter().copied().find(|one| *one == text).ok_or_else(|| {
            let accepted = accepted.join(", ");
            InstallError::new(format!("--{name}: {text:?} is not accepted, expected one of {accepted}"))
        })
    }

    fn directory(&self, name: &str, default: &str) -> Result<PathBuf, InstallError> {
        let path = PathBuf::from(self.text(name).unwrap_or(default));
        if path.is_absolute() {
            return Ok(path);
        }
        let given = path.display();
        Err(InstallError::new(format!("--{name}: {given:?} is not accepted, expected an absolute path")))
    }

    fn platform(&self) -> Result<Platform, InstallError> {
        let name = self.one_of("platform", &PLATFORMS.map(|platform| platform.name))?;
        Platform::by_name(name).ok_or_else(|| InstallError::new("--platform: unknown"))
    }

    fn dirs(&self, platform: Platform) -> Result<Dirs, InstallError> {
        Ok(Dirs {
            net: self.directory("net-dir", platform.net_dir)?,
            bin: self.directory("bin-dir", platform.bin_dir)?,
            run: self.directory("run-dir", RUN_DIR)?,
        })
    }

    fn log_level(&self) -> Result<&'static str, InstallError> {
        self.one_of("log-level", &["info", "error", "warn", "debug"])
    }
}

/// Reads `install-cni`'s arguments. Returns the log level, too.
///
/// # Errors
/// The first argument that is not accepted.
pub fn install(args: &[String]) -> Result<(Command, &'static str), InstallError> {
    let rows = [COMMON.as_slice(), &INSTALL].concat();
    let given = Given::read(&rows, args)?;
    let level = given.log_level()?;
    if given.flag("help") {
        return Ok((Command::Help(help("install-cni", &rows)), level));
    }
    let pods = pods(&given)?;
    let platform = given.platform()?;
    let drop_in = given.one_of("drop-in", &["auto", "yes", "no"])?;
    let placement = match (platform.chained, drop_in) {
        (true, "yes") => Placement::DropIn,
        (true, _) => Placement::List,
        (false, "yes") => {
            let name = platform.name;
            return Err(InstallError::new(format!(
                "--drop-in: yes is not accepted with --platform={name}, expected no"
            )));
        }
        (false, _) => Placement::Standalone,
    };
    let dirs = given.dirs(platform)?;
    let listen = match given.text("listen").unwrap_or("[::]:8000") {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            InstallError::new(format!(
                "--listen: {text:?} is not accepted, expected ADDRESS:PORT, as [::]:8000"
            ))
        })?),
    };
    let install = Install {
        entry: entry(&given, &dirs, placement, level)?,
        dirs,
        placement,
        drop_in_auto: placement == Placement::List && drop_in == "auto",
        once: given.flag("once"),
        uninstall: given.flag("uninstall"),
        listen,
        dry_add: !given.flag("no-dry-add"),
        replace_istio: given.flag("replace-istio"),
        pods,
    };
    Ok((Command::Install(Box::new(install)), level))
}

fn pods(given: &Given) -> Result<Option<PodsOptions>, InstallError> {
    let Some(node) = given.text("node-name") else {
        let needs_it = [
            ("kubeconfig", given.text("kubeconfig").is_some()),
            ("remove-taint", given.flag("remove-taint")),
        ];
        if let Some((name, _)) = needs_it.into_iter().find(|(_, is_given)| *is_given) {
            return Err(InstallError::new(format!("--{name}: not accepted without --node-name")));
        }
        return Ok(None);
    };
    // A DNS subdomain. `$(NODE_NAME)` is what a variable that is not set leaves.
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if node.is_empty() || node.len() > 253 || !node.chars().all(is_name) {
        return Err(InstallError::new(format!(
            "--node-name: {node:?} is not accepted, expected the name of a node: lower-case letters, digits, `-` and `.`"
        )));
    }
    if given.flag("once") {
        return Err(InstallError::new(
            "--node-name: not accepted with --once, expected an agent that keeps running",
        ));
    }
    let kubeconfig = given.text("kubeconfig").map(|_| given.directory("kubeconfig", "")).transpose()?;
    Ok(Some(PodsOptions { node: node.to_owned(), kubeconfig, remove_taint: given.flag("remove-taint") }))
}

/// Reads the arguments of `istio-cni uninstall`. Returns the log level, too.
///
/// # Errors
/// The first argument that is not accepted.
pub fn uninstall(args: &[String]) -> Result<(Command, &'static str), InstallError> {
    let rows = [COMMON.as_slice(), &UNINSTALL].concat();
    let given = Given::read(&rows, args)?;
    let level = given.log_level()?;
    if given.flag("help") {
        return Ok((Command::Help(help("istio-cni uninstall", &rows)), level));
    }
    let dirs = given.dirs(given.platform()?)?;
    let results = given.directory("results-dir", "/var/lib/cni/results")?;
    Ok((Command::Uninstall(Uninstall { dirs, binary: given.flag("binary"), results }), level))
}

/// Our object of the list: what the plugin reads, as `netconf` has it.
fn entry(given: &Given, dirs: &Dirs, placement: Placement, level: &str) -> Result<Value, InstallError> {
    let mut entry = Map::new();
    entry.insert("type".to_owned(), json!(TYPE));
    entry.insert("capabilities".to_owned(), json!({ POD_ANNOTATIONS: true }));
    entry.insert("plugin_log_level".to_owned(), json!(level));
    entry.insert("cni_agent_run_dir".to_owned(), json!(dirs.run));
    let names = given.text("exclude-namespaces").unwrap_or("kube-system");
    let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    entry.insert("exclude_namespaces".to_owned(), json!(names));
    for (option, key) in [("pod-namespace", "pod_namespace"), ("backend", "backend")] {
        entry.extend(given.text(option).map(|text| (key.to_owned(), json!(text))));
    }
    entry.insert("on_unknown".to_owned(), json!(given.one_of("on-unknown", &["fail", "pass"])?));
    if let Some(text) = given.text("deadline-ms") {
        let number: u64 = text.parse().map_err(|_| {
            InstallError::new(format!("--deadline-ms: {text:?} is not accepted, expected a number"))
        })?;
        entry.insert("deadline_ms".to_owned(), json!(number));
    }
    if let Some(text) = given.text("capture") {
        let value: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
            InstallError::new(format!("--capture: {text:?} is not accepted, expected a JSON object: {error}"))
        })?;
        entry.insert("capture".to_owned(), Value::Object(value));
    }
    if placement == Placement::Standalone {
        entry.insert("cniVersion".to_owned(), json!("1.0.0"));
        entry.insert("name".to_owned(), json!(TYPE));
        entry.insert("standalone".to_owned(), json!(true));
    }
    Ok(Value::Object(entry))
}

fn help(program: &str, rows: &[Row]) -> String {
    let mut text = format!("Usage: {program} [OPTIONS]\n\n");
    for (name, value, what) in rows {
        let option = value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"));
        text.push_str(&format!("  {option:<28} {what}\n"));
    }
    text.push_str("\nPlatforms:\n");
    for platform in PLATFORMS {
        text.push_str(&format!("  {platform}\n"));
    }
    text
}
