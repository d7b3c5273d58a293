//! The options of `install-cni`, `istio-cni audit`, `istio-cni status` and `istio-cni uninstall`: one table,
//! from which `--help` is made.

mod given;
mod table;

use std::net::SocketAddr;
use std::path::PathBuf;

use istio_iptables::config::{GuardAction, Output};
use serde_json::{Map, Value, json};

use super::error::InstallError;
use super::splice::TYPE;
use crate::netconf::{KEY, NetConf, POD_ANNOTATIONS};
use crate::plugin;
use crate::usage;

use given::ParsedArgs;
use table::help;

pub use table::Row;

/// The options of a command of the agent, and the platforms of `--platform`.
#[must_use]
pub fn rows(command: &str) -> Vec<Row> {
    table::rows(command)
}

/// Which file of the network configurations is the runtime's, as Istio's `install-cni` calls it.
pub const CONF_NAME: &str = "cni-conf-name";

/// Where libcni keeps results.
pub const RESULTS_DIR: &str = "/var/lib/cni/results";
const RESULTS: &str = "results-dir";

/// Key and value of the label of pods without capture, as Istio's `install-cni` calls them.
pub const LABEL_KEY: &str = "repair-broken-pod-label-key";
/// As [`LABEL_KEY`].
pub const LABEL_VALUE: &str = "repair-broken-pod-label-value";
/// Key and value that are the defaults, as Istio's.
pub const DEFAULT_LABEL: (&str, &str) = ("cni.istio.io/uninitialized", "true");

/// Where container runtimes keep network namespaces.
pub const NETNS_DIR: &str = "/var/run/netns";

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// Network configurations.
    pub net: PathBuf,
    /// The configuration that the runtime uses; `None`: the first.
    pub conf_name: Option<String>,
    /// Programs.
    pub bin: PathBuf,
    /// State.
    pub run: PathBuf,
}

/// How the plugin gets into the network's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallMode {
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
    /// Whether the directory of programs was given: it is not the platform's.
    pub bin_dir_given: bool,
    /// How the plugin gets into the network's list.
    pub mode: InstallMode,
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
    /// How the rules of captured pods are guarded; `None`: they are not.
    pub guard: Option<GuardOptions>,
    /// What follows for pods that have started without capture; `None`: they are not looked for.
    pub repair: Option<RepairOptions>,
}

/// What follows for a pod that has started without capture, as of Istio's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairAction {
    /// The rules are written from outside of the pod.
    Repair,
    /// An event and a condition of the pod.
    Event,
    /// A label of the pod.
    Label,
    /// The pod is deleted.
    Delete,
}

impl RepairAction {
    const ALL: [Self; 4] = [Self::Repair, Self::Event, Self::Label, Self::Delete];

    /// The name of the option's value, and of the metric's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Event => "event",
            Self::Label => "label",
            Self::Delete => "delete",
        }
    }
}

/// What follows for pods that have started without capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairOptions {
    /// What is done.
    pub action: RepairAction,
    /// Key and value of the label.
    pub label: (String, String),
    /// What libcni keeps for DEL.
    pub results_dir: PathBuf,
    /// Where the runtime keeps network namespaces.
    pub netns_dir: PathBuf,
}

/// How the rules of captured pods are guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardOptions {
    /// What follows a difference.
    pub action: GuardAction,
    /// Where the runtime keeps network namespaces.
    pub netns_dir: PathBuf,
    /// Whether connections are reset that began while the rules were gone.
    pub reset_escaped: bool,
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
    /// Whether the guard writes events and a condition of pods.
    pub events: bool,
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

/// `istio-cni audit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Where the files are.
    pub dirs: Dirs,
    /// What libcni keeps for DEL.
    pub results_dir: PathBuf,
    /// Where the runtime keeps network namespaces.
    pub netns_dir: PathBuf,
    /// How it reports.
    pub output: Output,
}

/// A command of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Installs.
    Install(Box<Install>),
    /// Compares the rules of all captured pods once.
    Audit(Audit),
    /// Looks at the node with these directories.
    Status(Dirs),
    /// Uninstalls.
    Uninstall(Uninstall),
    /// Prints a text: the help, or the version.
    Print(String),
}

/// Reads `install-cni`'s arguments. Returns the log level, too.
///
/// # Errors
/// The first argument that is not accepted.
pub fn install(args: &[String]) -> Result<(Command, &'static str), InstallError> {
    install_as("install-cni", args)
}

/// [`install`], with this name of the command in `--help`.
pub(super) fn install_as(command: &str, args: &[String]) -> Result<(Command, &'static str), InstallError> {
    let rows = rows("install");
    let given = ParsedArgs::read(&rows, args)?;
    let level = given.log_level()?;
    if let Some(text) = text(&given, command, &rows) {
        return Ok((Command::Print(text), level));
    }
    let pods = pods(&given)?;
    let repair = repair(&given, pods.as_ref())?;
    let platform = given.platform()?;
    let drop_in = given.one_of("drop-in", &["auto", "yes", "no"])?;
    let mode = match (platform.chained, drop_in) {
        (true, "yes") => InstallMode::DropIn,
        (true, _) => InstallMode::List,
        (false, "yes") => {
            let name = platform.name;
            return Err(InstallError::new(format!(
                "--drop-in: yes is not accepted with --platform={name}, expected no"
            )));
        }
        (false, _) => InstallMode::Standalone,
    };
    let dirs = given.dirs(platform)?;
    let listen = match given.text("listen").unwrap_or("[::]:8000") {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            InstallError::new(format!(
                "--listen: {text:?} is not accepted, expected an IP address and a port, such as [::]:8000 for all addresses"
            ))
        })?),
    };
    let install = Install {
        entry: entry(&given, &dirs, mode, level)?,
        dirs,
        bin_dir_given: given.text("bin-dir").is_some(),
        mode,
        drop_in_auto: mode == InstallMode::List && drop_in == "auto",
        once: given.flag("once"),
        uninstall: given.flag("uninstall"),
        listen,
        dry_add: !given.flag("no-dry-add"),
        replace_istio: given.flag("replace-istio"),
        pods,
        guard: guard(&given)?,
        repair,
    };
    Ok((Command::Install(Box::new(install)), level))
}

/// The requested text: `--help` or `--version`.
fn text(given: &ParsedArgs, command: &str, rows: &[Row]) -> Option<String> {
    if given.flag("help") {
        Some(help(command, rows))
    } else {
        given.flag("version").then(|| usage::version(command.split_whitespace().next().unwrap_or_default()))
    }
}

fn pods(given: &ParsedArgs) -> Result<Option<PodsOptions>, InstallError> {
    let events = given.one_of("pod-events", &["true", "false"])? == "true";
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
    Ok(Some(PodsOptions {
        node: node.to_owned(),
        kubeconfig,
        remove_taint: given.flag("remove-taint"),
        events,
    }))
}

fn guard(given: &ParsedArgs) -> Result<Option<GuardOptions>, InstallError> {
    let netns_dir = given.directory("netns-dir", NETNS_DIR)?;
    let action = match given.one_of("guard", &["repair", "lockdown", "report", "off"])? {
        "repair" => GuardAction::Repair,
        "report" => GuardAction::Report,
        "lockdown" => GuardAction::Lockdown,
        _ => return Ok(None),
    };
    Ok(Some(GuardOptions { action, netns_dir, reset_escaped: given.flag("reset-escaped") }))
}

fn repair(given: &ParsedArgs, pods: Option<&PodsOptions>) -> Result<Option<RepairOptions>, InstallError> {
    let wanted = given.one_of("repair", &["repair", "event", "label", "delete", "off"])?;
    let label = (given.label(LABEL_KEY, DEFAULT_LABEL.0)?, given.label(LABEL_VALUE, DEFAULT_LABEL.1)?);
    let results_dir = given.directory(RESULTS, RESULTS_DIR)?;
    let netns_dir = given.directory("netns-dir", NETNS_DIR)?;
    let Some(action) = RepairAction::ALL.into_iter().find(|action| action.name() == wanted) else {
        return Ok(None);
    };
    let problem = match (action, pods) {
        (RepairAction::Repair, _) => None,
        (_, None) => Some("without --node-name"),
        (RepairAction::Event, Some(pods)) if !pods.events => Some("with --pod-events=false"),
        (_, Some(_)) => None,
    };
    if let Some(problem) = problem {
        return Err(InstallError::new(format!("--repair: {wanted} is not accepted {problem}")));
    }
    Ok(Some(RepairOptions { action, label, results_dir, netns_dir }))
}

/// Reads the arguments of `istio-cni uninstall`. Returns the log level, too.
///
/// # Errors
/// The first argument that is not accepted.
pub fn uninstall(args: &[String]) -> Result<(Command, &'static str), InstallError> {
    let rows = rows("uninstall");
    let given = ParsedArgs::read(&rows, args)?;
    let level = given.log_level()?;
    if let Some(text) = text(&given, "istio-cni uninstall", &rows) {
        return Ok((Command::Print(text), level));
    }
    let dirs = given.dirs(given.platform()?)?;
    let results = given.directory(RESULTS, RESULTS_DIR)?;
    Ok((Command::Uninstall(Uninstall { dirs, binary: given.flag("binary"), results }), level))
}

/// Reads the arguments of `istio-cni status`. Returns the log level, too.
///
/// # Errors
/// The first argument that is not accepted.
pub fn status(args: &[String]) -> Result<(Command, &'static str), InstallError> {
    let rows = rows("status");
    let given = ParsedArgs::read(&rows, args)?;
    let level = given.log_level()?;
    let command = match text(&given, "istio-cni status", &rows) {
        Some(text) => Command::Print(text),
        None => Command::Status(given.dirs(given.platform()?)?),
    };
    Ok((command, level))
}

/// Reads the arguments of `istio-cni audit`. Returns the log level, too.
///
/// # Errors
/// The first argument that is not accepted.
pub fn audit(args: &[String]) -> Result<(Command, &'static str), InstallError> {
    let rows = rows("audit");
    let given = ParsedArgs::read(&rows, args)?;
    let level = given.log_level()?;
    if let Some(text) = text(&given, "istio-cni audit", &rows) {
        return Ok((Command::Print(text), level));
    }
    let output = match given.one_of("output", &["text", "json"])? {
        "json" => Output::Json,
        _ => Output::Text,
    };
    let dirs = given.dirs(given.platform()?)?;
    let results_dir = given.directory(RESULTS, RESULTS_DIR)?;
    let netns_dir = given.directory("netns-dir", NETNS_DIR)?;
    Ok((Command::Audit(Audit { dirs, results_dir, netns_dir, output }), level))
}

/// Our object of the list: what the plugin reads, as `netconf` has it.
fn entry(given: &ParsedArgs, dirs: &Dirs, mode: InstallMode, level: &str) -> Result<Value, InstallError> {
    let mut entry = Map::new();
    entry.insert("type".to_owned(), json!(TYPE));
    entry.insert("capabilities".to_owned(), json!({ POD_ANNOTATIONS: true }));
    entry.insert("plugin_log_level".to_owned(), json!(level));
    entry.insert("cni_agent_run_dir".to_owned(), json!(dirs.run));
    let names = given.namespaces("exclude-namespaces")?.unwrap_or_else(|| vec!["kube-system"]);
    entry.insert("exclude_namespaces".to_owned(), json!(names));
    let own = given.namespace("pod-namespace")?;
    for (key, text) in [("pod_namespace", own), ("backend", given.text("backend"))] {
        entry.extend(text.map(|text| (key.to_owned(), json!(text))));
    }
    entry.insert("on_unknown".to_owned(), json!(given.one_of("on-unknown", &["fail", "pass"])?));
    if let Some(text) = given.text("deadline-ms") {
        let number: u64 = text.parse().map_err(|_| {
            InstallError::new(format!("--deadline-ms: {text:?} is not accepted, expected a number"))
        })?;
        entry.insert("deadline_ms".to_owned(), json!(number));
    }
    if let Some(text) = given.text("capture") {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            InstallError::new(format!("--capture: {text:?} is not accepted, expected a JSON object: {error}"))
        })?;
        entry.insert("capture".to_owned(), value);
    }
    if mode == InstallMode::Standalone {
        entry.insert("cniVersion".to_owned(), json!("1.0.0"));
        entry.insert("name".to_owned(), json!(TYPE));
        entry.insert("standalone".to_owned(), json!(true));
    }
    let entry = Value::Object(entry);
    require_accepted(&entry)?;
    Ok(entry)
}

/// Refuses an entry that the plugin refuses: every ADD on the node would fail.
fn require_accepted(entry: &Value) -> Result<(), InstallError> {
    let text = entry.to_string();
    let accepted = NetConf::parse(text.as_bytes()).and_then(|conf| plugin::validated(&conf));
    let Err(error) = accepted else { return Ok(()) };
    // Options are called as their keys.
    let of_key = error.msg.strip_prefix(KEY).and_then(|text| text.split_once(": "));
    Err(InstallError::new(match of_key {
        Some((key, problem)) => format!("--{}: {problem}", key.replace('_', "-")),
        None => error.msg,
    }))
}
