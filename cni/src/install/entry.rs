//! Our entry on the node: in the runtime's list, in a drop-in file or in a configuration of its own.

use std::path::{Path, PathBuf};

use istio_iptables::text::path_shown;
use serde_json::Value;

use super::error::InstallError;
use super::files::{self, Expected, LockedDir, Written};
use super::net_dir::{self, Placed};
use super::options::Placement;

/// In the drop-in directory of a network. Behind those with lower numbers.
const DROP_IN: &str = "50-istio-cni.conf";
/// Beside the configurations of other networks that multus calls.
const STANDALONE: &str = "istio-cni.conf";

/// Puts the entry in its place, and reads it back. Nothing is written if it is there.
///
/// # Errors
/// It cannot be put there.
pub fn insert(net: &Path, placement: Placement, entry: &Value) -> Result<Placed, InstallError> {
    let dir = LockedDir::lock(net)?;
    let text = entry.to_string();
    match placement {
        Placement::List => net_dir::insert(&dir, &text),
        Placement::Standalone => own_file(&dir, &net.join(STANDALONE), &text),
        Placement::DropIn => {
            let path = drop_in(net)?;
            let parent = path.parent().unwrap_or(net);
            files::create_dir(parent)?;
            let placed = own_file(&LockedDir::lock(parent)?, &path, &text)?;
            // Libcni would load both.
            let removed = net_dir::remove(&dir)?;
            Ok(Placed { changed: placed.changed || !removed.is_empty(), ..placed })
        }
    }
}

/// Whether `insert` would write nothing.
///
/// # Errors
/// There is no configuration, or it cannot be read.
pub fn is_in_place(net: &Path, placement: Placement, entry: &Value) -> Result<bool, InstallError> {
    let text = entry.to_string();
    let has = |path: &Path| Ok(files::read(path)?.as_deref() == Some(text.as_bytes()));
    match placement {
        Placement::List => net_dir::has_entry(net, &text),
        Placement::Standalone => has(&net.join(STANDALONE)),
        Placement::DropIn => has(&drop_in(net)?),
    }
}

/// Where the drop-in file of the runtime's network is.
fn drop_in(net: &Path) -> Result<PathBuf, InstallError> {
    let file = net_dir::choose(net)?;
    let shown = path_shown(&file.path);
    let Some(list) = file.list() else {
        return Err(InstallError::new(format!(
            "{shown}: not a list, which drop-in files need; use --drop-in=no"
        )));
    };
    if list.inlined_only() {
        return Err(InstallError::new(format!("{shown}: loadOnlyInlinedPlugins is true; use --drop-in=no")));
    }
    let name = list.name();
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(InstallError::new(format!(
            "{shown}: {name:?} is no name of a directory, which drop-in files need; use --drop-in=no"
        )));
    }
    Ok(net.join(name).join(DROP_IN))
}

fn own_file(dir: &LockedDir, path: &Path, text: &str) -> Result<Placed, InstallError> {
    let placed = |changed| Placed { path: path.to_owned(), changed };
    if files::read(path)?.as_deref() == Some(text.as_bytes()) {
        return Ok(placed(false));
    }
    match dir.write(path, text.as_bytes(), 0o644, Expected::Anything)? {
        Written::Yes => Ok(placed(true)),
        Written::Changed => {
            let shown = path_shown(path);
            Err(InstallError::new(format!("{shown}: changed by another program while it was written")))
        }
    }
}

/// Takes the entry out, wherever it is. Returns what was changed or removed.
///
/// # Errors
/// A file cannot be changed.
pub fn remove(net: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let dir = LockedDir::lock(net)?;
    let mut changed = net_dir::remove(&dir)?;
    let networks = net_dir::networks(net)?;
    for name in files::directories(net)? {
        let network = net.join(&name);
        let path = network.join(DROP_IN);
        if files::read(&path)?.is_some() {
            LockedDir::lock(&network)?.remove(&path)?;
            changed.push(path);
        } else if files::has_temporary(&network)? {
            // Locking removes what a process that was killed left.
            LockedDir::lock(&network)?;
        }
        if networks.contains(&name) {
            files::remove_empty_dir(&network);
        }
    }
    let standalone = net.join(STANDALONE);
    if files::read(&standalone)?.is_some() {
        dir.remove(&standalone)?;
        changed.push(standalone);
    }
    Ok(changed)
}

/// The files that name the plugin.
///
/// # Errors
/// A directory cannot be read.
pub fn users(net: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut users = net_dir::users(net)?;
    for name in files::directories(net)? {
        users.extend(net_dir::users(&net.join(name))?);
    }
    Ok(users)
}
