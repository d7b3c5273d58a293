//! The table of options, from which `--help` is made.

use crate::install::platform::PLATFORMS;

/// One option: name, value if it takes one, what it does.
pub type Row = (&'static str, Option<&'static str>, &'static str);

pub(super) const COMMON: [Row; 7] = [
    ("platform", Some("NAME"), "platform that determines the directories, see below [default: default]"),
    ("net-dir", Some("DIR"), "directory of network configurations [default: by platform]"),
    ("bin-dir", Some("DIR"), "directory of plugin programs [default: by platform]"),
    ("run-dir", Some("DIR"), "directory of the plugin's state [default: /var/run/istio-cni]"),
    ("log-level", Some("error|warn|info|debug"), "least level of log lines [default: info]"),
    ("help", None, "print this help (-h)"),
    ("version", None, "print the version (-V)"),
];

const CONF_NAME: Row = (
    super::CONF_NAME,
    Some("FILE"),
    "name of the configuration that the runtime uses, as NAME.conflist; empty: the first valid one [default: empty]",
);

pub(super) const STATUS: [Row; 1] = [CONF_NAME];

const NETNS_DIR: Row =
    ("netns-dir", Some("DIR"), "directory of the runtime's network namespaces [default: /var/run/netns]");

const RESULTS_DIR: Row =
    ("results-dir", Some("DIR"), "directory of cached results [default: /var/lib/cni/results]");

/// The option of [`COMMON`] that `audit` has no use for.
pub(super) const OF_INSTALLATION: &str = "bin-dir";

pub(super) const AUDIT: [Row; 5] = [
    ("node", None, "all pods of this node that are captured or are to be: the default, and the only choice"),
    CONF_NAME,
    NETNS_DIR,
    RESULTS_DIR,
    ("output", Some("text|json"), "form of the report [default: text]"),
];

pub(super) const INSTALL: [Row; 24] = [
    CONF_NAME,
    ("once", None, "install, verify and exit"),
    (
        "drop-in",
        Some("auto|yes|no"),
        "yes: write a drop-in file next to the network configuration list, for libcni 1.3 or later; no: edit the list; auto: yes if \
         the runtime in the Node object supports it (containerd 2.1, CRI-O 1.33), otherwise no [default: auto]",
    ),
    (
        "replace-istio",
        None,
        "replace program and entry of Istio's CNI in sidecar mode; without this flag they are refused",
    ),
    (
        "uninstall",
        None,
        "on SIGTERM, remove the configuration entry and the state; without this flag they stay, for upgrades",
    ),
    (
        "listen",
        Some("ADDRESS"),
        "address of /healthz, /readyz and /metrics; empty: none [default: [::]:8000]",
    ),
    (
        "node-name",
        Some("NAME"),
        "Node object whose pods to report to the plugin, from the API server (only in the program install-cni)",
    ),
    (
        "remove-taint",
        None,
        "remove the taint cni.istio.io/not-ready from the node when the agent is ready; needs --node-name",
    ),
    ("kubeconfig", Some("FILE"), "kubeconfig for the API server [default: the pod's service account]"),
    (
        "exclude-namespaces",
        Some("NAMES"),
        "comma-separated namespaces whose pods are not captured [default: kube-system]",
    ),
    ("pod-namespace", Some("NAME"), "namespace of the agent, whose own pods are not captured"),
    ("backend", Some("NAME"), "backend of the plugin [default: auto]"),
    (
        "on-unknown",
        Some("fail|pass"),
        "fail: a pod that no source knows does not start; pass: it starts without capture [default: fail]",
    ),
    ("deadline-ms", Some("NUMBER"), "timeout of one call of the plugin [default: 30000]"),
    ("capture", Some("JSON"), "configuration key `capture` of the plugin"),
    (
        "guard",
        Some("repair|lockdown|report|off"),
        "what follows a change of a captured pod's rules by another program: repair; lockdown: also drop what they would capture until they are live again; report; off: no comparison [default: repair]",
    ),
    NETNS_DIR,
    (
        "reset-escaped",
        None,
        "reset connections that began while a pod's rules were gone; without this flag they are reported and stay outside the mesh",
    ),
    (
        "repair",
        Some("WHAT"),
        "what follows for an injected pod that has started without capture: repair: write its rules from outside; event: an event and a condition; label; delete; off: no search [default: repair]",
    ),
    (
        super::LABEL_KEY,
        Some("KEY"),
        "key of the label of --repair=label [default: cni.istio.io/uninitialized]",
    ),
    (super::LABEL_VALUE, Some("VALUE"), "value of this label [default: true]"),
    RESULTS_DIR,
    (
        "pod-events",
        Some("true|false"),
        "whether guard and repair write an event and a condition of the pod; needs --node-name [default: true]",
    ),
    ("no-dry-add", None, "skip the test run of the plugin in a temporary network namespace"),
];

pub(super) const UNINSTALL: [Row; 2] = [
    ("binary", None, "also remove the program, unless a configuration or a cached result names it"),
    RESULTS_DIR,
];

/// The options of a command of the agent; those of `install` for any other word.
pub(super) fn rows(command: &str) -> Vec<Row> {
    let common = COMMON.into_iter();
    match command {
        "status" => common.chain(STATUS).collect(),
        "audit" => common.filter(|(name, ..)| *name != OF_INSTALLATION).chain(AUDIT).collect(),
        "uninstall" => common.chain(UNINSTALL).collect(),
        _ => common.chain(INSTALL).collect(),
    }
}

/// What `--help` prints.
pub(super) fn help(program: &str, rows: &[Row]) -> String {
    let mut text = format!("Usage: {program} [OPTIONS]\n\n");
    for (name, value, what) in rows {
        let option = value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"));
        text.push_str(&format!("  {option:<28} {what}\n"));
    }
    let is_by_platform = rows.iter().any(|(name, ..)| *name == COMMON[0].0);
    if !is_by_platform {
        return text;
    }
    text.push_str("\nPlatforms:\n");
    for platform in PLATFORMS {
        text.push_str(&format!("  {platform}\n"));
    }
    text
}
