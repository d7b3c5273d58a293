//! Parses arguments by the table.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::table::Row;
use super::{CONF_NAME, Dirs};
use crate::install::config_file;
use crate::install::error::InstallError;
use crate::install::platform::Platform;
use crate::netconf::RUN_DIR;
use istio_iptables::cli::is_misspelt;

/// Values of a flag, which is true without one: a DaemonSet takes them from a ConfigMap.
const TRUE: &str = "true";
const FALSE: &str = "false";

/// What was given, by name.
pub(super) struct ParsedArgs(BTreeMap<&'static str, String>);

impl ParsedArgs {
    /// Reads arguments.
    ///
    /// # Errors
    /// The first that is not in the table, or has no value of its kind.
    pub(super) fn read(rows: &[Row], args: &[String]) -> Result<Self, InstallError> {
        let mut given = BTreeMap::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long(arg), None),
            };
            let row = name.strip_prefix("--").and_then(|name| rows.iter().find(|row| row.0 == name));
            let Some((name, takes, _)) = row else {
                let hint = meant(rows, name)
                    .map(|meant| format!("did you mean --{meant}?"))
                    .or_else(|| of_istio(rows, name))
                    .unwrap_or_else(|| "--help lists the options".to_owned());
                return Err(InstallError::new(format!("unknown argument {arg:?}; {hint}")));
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

    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name) == Some(TRUE)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn one_of(&self, name: &str, accepted: &[&'static str]) -> Result<&'static str, InstallError> {
        let Some(text) = self.text(name) else { return Ok(accepted.first().copied().unwrap_or_default()) };
        accepted.iter().copied().find(|one| *one == text).ok_or_else(|| {
            let accepted = accepted.join(", ");
            InstallError::new(format!("--{name}: {text:?} is not accepted, expected one of {accepted}"))
        })
    }

    /// The name of one namespace.
    pub(super) fn namespace(&self, name: &str) -> Result<Option<&str>, InstallError> {
        self.text(name).map(|text| namespace(name, text)).transpose()
    }

    /// Names of namespaces, by commas.
    pub(super) fn namespaces(&self, name: &str) -> Result<Option<Vec<&str>>, InstallError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|one| namespace(name, one)).collect::<Result<_, _>>().map(Some)
    }

    pub(super) fn directory(&self, name: &str, default: &str) -> Result<PathBuf, InstallError> {
        let path = PathBuf::from(self.text(name).unwrap_or(default));
        if path.is_absolute() {
            return Ok(path);
        }
        let given = path.display();
        Err(InstallError::new(format!("--{name}: {given:?} is not accepted, expected an absolute path")))
    }

    /// The key or the value of a label of Kubernetes.
    pub(super) fn label(&self, name: &str, default: &str) -> Result<String, InstallError> {
        let text = self.text(name).unwrap_or(default);
        let is_key = name.ends_with("key");
        let (prefix, word) = match text.rsplit_once('/').filter(|_| is_key) {
            Some((prefix, word)) => (Some(prefix), word),
            None => (None, text),
        };
        let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let is_word = word.len() <= 63
            && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            && is_end(word.chars().next())
            && is_end(word.chars().last());
        let is_prefix = |prefix: &str| prefix.len() <= 253 && prefix.split('.').all(is_label);
        if (is_word && prefix.is_none_or(is_prefix)) || (text.is_empty() && !is_key) {
            return Ok(text.to_owned());
        }
        let what = if is_key { "key" } else { "value" };
        Err(InstallError::new(format!("--{name}: {text:?} is not accepted, expected the {what} of a label")))
    }

    pub(super) fn platform(&self) -> Result<Platform, InstallError> {
        let name = self.text("platform").unwrap_or_default();
        Platform::by_name(name).ok_or_else(|| {
            let accepted = Platform::accepted();
            InstallError::new(format!("--platform: {name:?} is not accepted, expected one of {accepted}"))
        })
    }

    pub(super) fn dirs(&self, platform: Platform) -> Result<Dirs, InstallError> {
        Ok(Dirs {
            net: self.directory("net-dir", platform.net_dir)?,
            conf_name: self.conf_name(platform)?,
            bin: self.directory("bin-dir", platform.bin_dir)?,
            run: self.directory("run-dir", RUN_DIR)?,
        })
    }

    /// The name of a file that libcni reads, if one is named.
    fn conf_name(&self, platform: Platform) -> Result<Option<String>, InstallError> {
        let Some(text) = self.text(CONF_NAME).filter(|text| !text.is_empty()) else { return Ok(None) };
        let problem = if !platform.chained {
            format!("not accepted with --platform={}, expected none", platform.name)
        } else if text.contains('/') || !config_file::is_config(text.as_ref()) {
            format!(
                "{text:?} is not accepted, expected the name of a file in --net-dir: NAME.conflist, NAME.conf or NAME.json"
            )
        } else {
            return Ok(Some(text.to_owned()));
        };
        Err(InstallError::new(format!("--{CONF_NAME}: {problem}")))
    }

    pub(super) fn log_level(&self) -> Result<&'static str, InstallError> {
        self.one_of("log-level", &["info", "error", "warn", "debug"])
    }
}

/// The short options and words that people try.
fn long(arg: &str) -> &str {
    match arg {
        "-h" | "help" => "--help",
        "-V" | "version" => "--version",
        "-o" => "--output",
        other => other,
    }
}

/// The option that was probably meant: without its dashes, or one character off.
fn meant(rows: &[Row], name: &str) -> Option<&'static str> {
    let name = &name.trim_start_matches('-').replace('_', "-").to_ascii_lowercase();
    let mut known = rows.iter().map(|row| row.0);
    known.clone().find(|known| *known == name).or_else(|| known.find(|known| is_misspelt(name, known)))
}

/// Options of Istio's `install-cni` whose names differ here, and what is meant: options of the table, with
/// their values.
const OF_ISTIO: [(&str, &str); 15] = [
    ("cni-agent-run-dir", "run-dir"),
    ("cni-net-dir", "net-dir"),
    ("kubecfg-file-name", "kubeconfig"),
    ("log-output-level", "log-level"),
    ("monitoring-port", "listen=[::]:PORT"),
    ("mounted-cni-net-dir", "net-dir"),
    ("plugin-log-level", "log-level"),
    ("repair-delete-pods", "repair=delete"),
    ("repair-enabled", "repair"),
    ("repair-init-container-name", "repair"),
    ("repair-label-pods", "repair=label"),
    ("repair-node-name", "node-name"),
    ("repair-repair-pods", "repair=repair"),
    ("repair-run-as-daemon", "repair"),
    ("repair-sidecar-annotation", "repair"),
];

/// Istio's options that nothing stands for.
const ONLY_OF_ISTIO: [&str; 12] = [
    "ambient-enabled",
    "chained-cni-plugin",
    "cni-network-config",
    "cni-network-config-file",
    "ctrlz-port",
    "kube-ca-file",
    "kubeconfig-mode",
    "log-uds-address",
    "skip-cni-binaries",
    "skip-tls-verify",
    "update-cni-binaries",
    "ztunnel-uds-address",
];

/// What is meant by an option of Istio's `install-cni`, in kebab case or as its variable.
fn of_istio(rows: &[Row], name: &str) -> Option<String> {
    let name = name.trim_start_matches('-').replace('_', "-").to_ascii_lowercase();
    if ONLY_OF_ISTIO.contains(&name.as_str()) {
        return Some("an option of Istio's install-cni without a meaning here: leave it out".to_owned());
    }
    let (_, meant) = OF_ISTIO.into_iter().find(|(of_istio, _)| *of_istio == name)?;
    let option = meant.split_once('=').map_or(meant, |(option, _)| option);
    rows.iter().any(|row| row.0 == option).then(|| format!("did you mean --{meant}?"))
}

/// `$(POD_NAMESPACE)` is what a variable that is not set leaves.
fn namespace<'a>(option: &str, text: &'a str) -> Result<&'a str, InstallError> {
    if is_label(text) {
        return Ok(text);
    }
    Err(InstallError::new(format!(
        "--{option}: {text:?} is not accepted, expected the name of a namespace: lower-case letters, digits and `-`, 63 at most"
    )))
}

/// Whether a text is a DNS label, as the names of namespaces are.
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
