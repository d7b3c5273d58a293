//! Our entry on the node: in the runtime's list, in a drop-in file or in a configuration of its own.

use std::path::{Path, PathBuf};

use istio_iptables::text::path_shown;
use serde_json::Value;

use super::config_file::{ConfigFile, DROP_IN, Placed};
use super::error::InstallError;
use super::files;
use super::locked_dir::{self, Expected, LockedDir, WriteOutcome};
use super::net_dir;
use super::options::{Dirs, InstallMode};
use super::splice::{Owner, Single, TYPE};

/// Beside the configurations of other networks that multus calls.
const STANDALONE: &str = "istio-cni.conf";

/// Puts the entry in its place, and reads it back. Nothing is written if it is there. With `istio`, Istio's
/// is replaced.
///
/// # Errors
/// It cannot be put there.
pub fn insert(dirs: &Dirs, mode: InstallMode, entry: &Value, istio: bool) -> Result<Placed, InstallError> {
    let net = &dirs.net;
    let dir = LockedDir::lock(net)?;
    let text = entry.to_string();
    let (placed, kept) = match mode {
        InstallMode::List => {
            let placed = net_dir::insert(dirs, &dir, &text, istio)?;
            let path = placed.path.clone();
            (placed, Some(path))
        }
        InstallMode::Standalone => return own_file(&dir, &standalone(net), &text, istio),
        InstallMode::DropIn => {
            let path = drop_in(dirs)?;
            let parent = path.parent().unwrap_or(net);
            files::create_dir(parent)?;
            (own_file(&LockedDir::lock(parent)?, &path, &text, istio)?, None)
        }
    };
    // Libcni would load both; and a plugin that delegates to another list, as multus does, passes no
    // annotations.
    let mut removed = net_dir::remove(&dir, istio, kept.as_deref())?;
    if mode == InstallMode::List {
        removed.extend(remove_drop_ins(&dir)?);
    } else if placed.changed {
        dir.notify_watchers()?;
    }
    for path in &removed {
        log::info!(file = path_shown(path); "entry removed from a configuration that the runtime does not use");
    }
    Ok(Placed { changed: placed.changed || !removed.is_empty(), ..placed })
}

/// Refuses a list of a version that the plugin does not have, and takes the entry out of it: every ADD on the
/// node would fail. Returns why it is refused.
///
/// # Errors
/// There is no list, or the entry cannot be removed.
pub fn refuse_version(dirs: &Dirs, mode: InstallMode) -> Result<Option<InstallError>, InstallError> {
    if mode == InstallMode::Standalone {
        return Ok(None);
    }
    let file = net_dir::choose(dirs)?;
    let Err(invalid) = file.require_version() else { return Ok(None) };
    let dir = LockedDir::lock(&dirs.net)?;
    let mut removed = net_dir::remove(&dir, false, None)?;
    removed.extend(remove_drop_ins(&dir)?);
    for path in &removed {
        log::warn!(file = path_shown(path); "entry removed: every ADD on the node would fail");
    }
    Ok(Some(InstallError::new(format!(
        "{}: {invalid}; until the network plugin has one of these, pods start without capture",
        path_shown(&file.path)
    ))))
}

/// Whether `insert` would write nothing.
///
/// # Errors
/// There is no configuration, or it cannot be read.
pub fn is_in_place(dirs: &Dirs, mode: InstallMode, entry: &Value) -> Result<bool, InstallError> {
    let text = entry.to_string();
    let has = |path: &Path| files::has_bytes(path, text.as_bytes());
    match mode {
        InstallMode::List => net_dir::has_entry(dirs, &text),
        InstallMode::Standalone => has(&standalone(&dirs.net)),
        InstallMode::DropIn => has(&drop_in(dirs)?),
    }
}

/// Whether a file has the entry, in a list or as a single configuration, even if the runtime does not use the
/// file.
///
/// # Errors
/// It cannot be read.
pub fn is_in(path: &Path, entry: &Value) -> Result<bool, InstallError> {
    let text = entry.to_string();
    let Ok(file) = ConfigFile::read(path.to_owned())? else { return Ok(false) };
    Ok(file.list().map_or(file.text == text, |list| list.with_entry(&text).is_none()))
}

/// The file with our entry that the runtime uses, and the entry's text.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn find(dirs: &Dirs) -> Result<(PathBuf, String), InstallError> {
    let own = |path: PathBuf| {
        let bytes = if is_ours(&path)? { files::read(&path)? } else { None };
        Ok::<_, InstallError>(bytes.map(|bytes| (path, String::from_utf8_lossy(&bytes).into_owned())))
    };
    if let Some(found) = own(standalone(&dirs.net))? {
        return Ok(found);
    }
    let file = net_dir::choose(dirs)?;
    if let Some(entry) = file.list().and_then(|list| list.entry().map(str::to_owned)) {
        return Ok((file.path, entry));
    }
    let dropped = drop_in(dirs).ok().map(own).transpose()?.flatten();
    dropped.ok_or_else(|| InstallError::new(format!("{}: no entry of type {TYPE}", path_shown(&file.path))))
}

/// Where the configuration is that multus calls.
#[must_use]
pub fn standalone(net: &Path) -> PathBuf {
    net.join(STANDALONE)
}

/// Where the drop-in file of the runtime's network is.
///
/// # Errors
/// There is no list that loads drop-in files.
pub fn drop_in(dirs: &Dirs) -> Result<PathBuf, InstallError> {
    let file = net_dir::choose(dirs)?;
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
            "{shown}: {name:?} is not a valid directory name, which drop-in files need; use --drop-in=no"
        )));
    }
    Ok(dirs.net.join(name).join(DROP_IN))
}

fn own_file(dir: &LockedDir, path: &Path, text: &str, istio: bool) -> Result<Placed, InstallError> {
    let placed = |changed| Placed { path: path.to_owned(), changed };
    let old = check_own_file(path, istio)?;
    if old.as_deref() == Some(text.as_bytes()) {
        return Ok(placed(false));
    }
    let expected = old.as_deref().map_or(Expected::Absent, Expected::Bytes);
    match dir.write(path, text.as_bytes(), None, expected)? {
        WriteOutcome::Written => Ok(placed(true)),
        WriteOutcome::Conflict => {
            let shown = path_shown(path);
            Err(InstallError::new(format!("{shown}: changed by another program while it was written")))
        }
    }
}

/// Reads a file of our own. With `istio`, Istio's counts as ours.
///
/// # Errors
/// It cannot be read, or is something else.
pub fn check_own_file(path: &Path, istio: bool) -> Result<Option<Vec<u8>>, InstallError> {
    let bytes = files::read(path)?;
    match bytes.as_deref().map(owner) {
        None | Some(Owner::Ours) => Ok(bytes),
        Some(Owner::Istio { ambient: false }) if istio => Ok(bytes),
        Some(_) => Err(InstallError::new(format!(
            "{}: not ours; nothing was changed; remove the file or rename it",
            path_shown(path)
        ))),
    }
}

/// What is not a valid configuration is not ours.
fn owner(bytes: &[u8]) -> Owner {
    let single = std::str::from_utf8(bytes).ok().and_then(|text| Single::parse(text).ok());
    single.map_or(Owner::Other, |single| single.owner())
}

fn is_ours(path: &Path) -> Result<bool, InstallError> {
    if files::is_special(path) {
        return Ok(false);
    }
    Ok(files::read(path)?.is_some_and(|bytes| owner(&bytes) == Owner::Ours))
}

/// Takes our entry out, wherever it is. Returns what was changed or removed.
///
/// # Errors
/// A file cannot be changed.
pub fn remove(net: &Path) -> Result<Vec<PathBuf>, InstallError> {
    if !net.is_dir() {
        return Ok(Vec::new());
    }
    let dir = LockedDir::lock(net)?;
    let mut changed = net_dir::remove(&dir, false, None)?;
    changed.extend(remove_drop_ins(&dir)?);
    let standalone = standalone(net);
    if is_ours(&standalone)? {
        dir.remove(&standalone)?;
        changed.push(standalone);
    }
    Ok(changed)
}

/// Makes the runtime read a drop-in file that may have been written by an agent that was killed before it did
/// that.
///
/// # Errors
/// The directory cannot be written.
pub fn notify_runtime(net: &Path) -> Result<(), InstallError> {
    LockedDir::lock(net)?.notify_watchers()
}

fn remove_drop_ins(dir: &LockedDir) -> Result<Vec<PathBuf>, InstallError> {
    let net = dir.path();
    let mut changed = Vec::new();
    let networks = net_dir::networks(net)?;
    for name in files::directories(net)? {
        let network = net.join(&name);
        let path = network.join(DROP_IN);
        if is_ours(&path)? {
            LockedDir::lock(&network)?.remove(&path)?;
            changed.push(path);
        } else if locked_dir::has_temporary(&network)? {
            // Locking removes what a process that was killed left.
            LockedDir::lock(&network)?;
        }
        if networks.iter().any(|network| name == network.as_str()) {
            files::remove_empty_dir(&network);
        }
    }
    if !changed.is_empty() {
        dir.notify_watchers()?;
    }
    Ok(changed)
}

/// The files that name the plugin.
///
/// # Errors
/// A directory cannot be read.
pub fn users(net: &Path) -> Result<Vec<PathBuf>, InstallError> {
    if !net.is_dir() {
        return Ok(Vec::new());
    }
    let mut users = users_in(net)?;
    for name in files::directories(net)? {
        users.extend(users_in(&net.join(name))?);
    }
    Ok(users)
}

/// The files of a directory that name the plugin: configurations, and former configurations. Other programs
/// rename configurations, and rename them back.
fn users_in(dir: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut users = Vec::new();
    for name in files::names(dir)? {
        let path = dir.join(&name);
        if files::is_special(&path) {
            continue;
        }
        let bytes = files::read(&path)?.unwrap_or_default();
        // Whatever the file is: its text decides, with escapes read where it is JSON.
        let text = serde_json::from_slice::<Value>(&bytes)
            .map_or_else(|_| String::from_utf8_lossy(&bytes).into_owned(), |value| value.to_string());
        if text.contains(&format!("\"{TYPE}\"")) {
            users.push(path);
        }
    }
    Ok(users)
}
