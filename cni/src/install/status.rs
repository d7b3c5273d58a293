//! `istio-cni status`: what is on the node, and whether pods are captured there.

use std::path::{Path, PathBuf};

use istio_iptables::kernel::process::{Command, Host as _, SystemHost};
use istio_iptables::text::{count, path_shown};
use serde_json::{Value, json};

use super::error::InstallError;
use super::foreign::{self, Kind};
use super::options::Dirs;
use super::splice::TYPE;
use super::{binary, entry, files, socket};
use crate::lookup;
use crate::state::StateDir;
use crate::version::Version;

/// Looks at the node. Returns what was found, the conclusion first, and whether pods are captured.
///
/// # Errors
/// A directory or file cannot be read.
pub fn status(dirs: &Dirs, host: &SystemHost) -> Result<(String, bool), InstallError> {
    let foreign = foreign::find(dirs)?;
    let is_program_ours = foreign.iter().all(|one| one.kind != Kind::Program);
    let path = dirs.bin.join(TYPE);
    let program = if is_program_ours { version(host, &path) } else { Err("not ours".to_owned()) };
    let entry = find_entry(dirs);
    let (conclusion, captured) = match (&entry, &program) {
        (Err(problem), _) => (format!("not installed: pods start without capture: {problem}"), false),
        (Ok(_), Err(problem)) => {
            (format!("broken: no pod can start: {}: {problem}", path_shown(&path)), false)
        }
        (Ok((_, entry)), Ok(_)) => match binary::call(host, &path, &[("CNI_COMMAND", "STATUS")], entry) {
            Ok(()) => ("installed: injected pods are captured".to_owned(), true),
            Err(problem) => (format!("broken: injected pods cannot start: {}", problem.msg), false),
        },
    };
    let agent = lookup::socket(&dirs.run);
    let listens = if socket::is_served(&agent) { "an agent listens" } else { "no agent listens" };
    let pods = count(StateDir::new(&dirs.run).count(), "pod");
    let mut text = format!(
        "{conclusion}\nprogram: {}: {}\nentry: {}\nagent: {}: {listens}\ncaptured: {pods}\n",
        path_shown(&path),
        program.unwrap_or_else(|problem| problem),
        entry.map_or_else(|problem| problem, |(path, _)| path_shown(&path)),
        path_shown(&agent),
    );
    for one in &foreign {
        text.push_str(&format!("not ours: {one}\n"));
    }
    Ok((text, captured))
}

/// The program's own words, if it works.
fn version(host: &SystemHost, path: &Path) -> Result<String, String> {
    if files::size(path).is_none() {
        return Err("no such file".to_owned());
    }
    binary::version(host, path).map_err(|error| error.to_string())?;
    let mut command = Command::new(path.to_owned());
    command.args = vec!["--version".to_owned()];
    Ok(host.run(command).map_err(|error| error.to_string())?.stdout.trim().to_owned())
}

/// The file with the entry that the runtime uses, and the entry as the runtime passes it. `Err`: there is
/// none, or no runtime configuration.
fn find_entry(dirs: &Dirs) -> Result<(PathBuf, Value), String> {
    let (path, text) = entry::find(dirs).map_err(|error| error.to_string())?;
    let mut entry: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if let Some(keys) = entry.as_object_mut() {
        keys.insert("name".to_owned(), json!(TYPE));
        keys.insert("cniVersion".to_owned(), json!(Version::NEWEST.name()));
    }
    Ok((path, entry))
}
