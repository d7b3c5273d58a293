//! Invalid configuration files: they may contain our entry, which cannot be removed from them.

use std::fmt;
use std::path::{Path, PathBuf};

use istio_iptables::text::path_shown;
use serde_json::Value;

use super::config_file::{ConfigFile, DROP_IN};
use super::error::InstallError;
use super::files;
use super::net_dir;
use super::splice::{Invalid, TYPE};

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexamined {
    /// Where it is.
    pub path: PathBuf,
    /// Why it is not a configuration.
    problem: Invalid,
    /// Whether the plugin's type is in its text.
    pub names_plugin: bool,
}

impl fmt::Display for Unexamined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, problem) = (path_shown(&self.path), &self.problem);
        if self.names_plugin {
            write!(f, "{path}: {problem}; it names {TYPE}: repair or remove it, and uninstall again")
        } else {
            write!(f, "{path}: {problem}")
        }
    }
}

impl Unexamined {
    /// The outcome, as printed.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        if self.names_plugin { "not removed" } else { "not examined" }
    }

    /// Whether another program may still be writing it.
    #[must_use]
    pub fn is_recent(&self) -> bool {
        !files::is_special(&self.path) && !files::is_settled(&self.path)
    }
}

/// Finds the invalid files of a directory of configurations and of its drop-in directories.
///
/// # Errors
/// A directory or file cannot be read.
pub fn find(net: &Path) -> Result<Vec<Unexamined>, InstallError> {
    if !net.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for name in net_dir::configs(net)? {
        found.extend(unexamined(net.join(name))?);
    }
    for name in files::directories(net)? {
        let network = net.join(name);
        for name in net_dir::configs(&network)? {
            // Drop-in directories may hold unrelated files.
            let one = unexamined(network.join(&name))?;
            found.extend(one.filter(|one| one.names_plugin || name == DROP_IN));
        }
    }
    Ok(found)
}

fn unexamined(path: PathBuf) -> Result<Option<Unexamined>, InstallError> {
    let Err(problem) = ConfigFile::read(path.clone())? else { return Ok(None) };
    let bytes = if files::is_special(&path) { None } else { files::read(&path)? }.unwrap_or_default();
    let (names_plugin, is_json) = match serde_json::from_slice::<Value>(&bytes) {
        Ok(value) => (value.to_string().contains(&format!("\"{TYPE}\"")), true),
        Err(_) => (String::from_utf8_lossy(&bytes).contains(TYPE), false),
    };
    Ok((names_plugin || !is_json).then_some(Unexamined { path, problem, names_plugin }))
}
