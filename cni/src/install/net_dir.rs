//! The directory of network configurations: which file the runtime uses, and our entry in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use istio_iptables::text::path_shown;

use super::config_file::{ConfigFile, LIST, Placed, is_config};
use super::convert;
use super::error::InstallError;
use super::files;
use super::locked_dir::{Expected, LockedDir, WriteOutcome};
use super::options::{CONF_NAME, Dirs};
use super::splice::{Invalid, List, Owner};

/// The number of retries for a file that another process changes meanwhile.
const ATTEMPTS: usize = 20;

/// The file that the runtime uses: the first valid one, as in libcni, or the one that was named.
///
/// # Errors
/// There is none, it cannot be edited, or the directory cannot be read.
pub fn choose(dirs: &Dirs) -> Result<ConfigFile, InstallError> {
    let dir = &dirs.net;
    let mut problems = Vec::new();
    for name in candidates(dirs)? {
        let name = Path::new(&name);
        match ConfigFile::read(dir.join(name))? {
            Ok(file) => return Ok(file),
            // An entry in a later file would have no effect.
            Err(invalid) => match invalid.may_be_used() {
                Some(why) => {
                    return Err(InstallError::new(format!(
                        "{}: {invalid}, {why}",
                        path_shown(&dir.join(name))
                    )));
                }
                None => problems.push(format!("{}: {invalid}", path_shown(name))),
            },
        }
    }
    let dir = path_shown(dir);
    let (found, fix) = if problems.is_empty() {
        ("no file".to_owned(), "install the network plugin, or name its directory with --net-dir")
    } else {
        (problems.join("; "), "let the network plugin write it again, or correct or remove the file")
    };
    let expected = dirs.conf_name.as_ref().map_or_else(
        || "the one of the cluster's network plugin".to_owned(),
        |name| format!("{name} of --{CONF_NAME}"),
    );
    Err(InstallError::new(format!(
        "no valid network configuration in {dir} ({found}), expected {expected}; {fix}"
    )))
}

/// The names of the files of which the runtime uses one, in its order.
fn candidates(dirs: &Dirs) -> Result<Vec<OsString>, InstallError> {
    let mut names = configs(&dirs.net)?;
    if let Some(only) = &dirs.conf_name {
        names.retain(|name| name == only.as_str() || convert::is_made_of(name, only));
    }
    Ok(names)
}

/// The names of the networks of all lists.
///
/// # Errors
/// The directory cannot be read.
pub fn networks(dir: &Path) -> Result<Vec<String>, InstallError> {
    let mut networks = Vec::new();
    for name in configs(dir)? {
        let file = ConfigFile::read(dir.join(name))?;
        networks.extend(file.ok().and_then(|file| file.list().map(|list| list.name().to_owned())));
    }
    Ok(networks)
}

/// The invalid files before the one that the runtime uses: with containerd they keep it from being used.
///
/// # Errors
/// The directory cannot be read.
pub fn invalid(dirs: &Dirs) -> Result<Vec<(PathBuf, Invalid)>, InstallError> {
    let mut invalid = Vec::new();
    for name in candidates(dirs)? {
        let path = dirs.net.join(name);
        match ConfigFile::read(path.clone())? {
            Ok(_) => break,
            Err(problem) => invalid.push((path, problem)),
        }
    }
    Ok(invalid)
}

/// Whether the file that the runtime uses has this entry.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn has_entry(dirs: &Dirs, entry: &str) -> Result<bool, InstallError> {
    let file = choose(dirs)?;
    Ok(file.list().is_some_and(|list| !list.is_of_drop_ins() && list.with_entry(entry).is_none()))
}

/// The names of the files that libcni reads.
///
/// # Errors
/// The directory cannot be read.
pub fn configs(dir: &Path) -> Result<Vec<OsString>, InstallError> {
    Ok(files::names(dir)?.into_iter().filter(|name| is_config(name)).collect())
}

/// Puts our entry into the list that the runtime uses, with `istio` in place of Istio's. Nothing is written
/// if it is there.
///
/// # Errors
/// There is no list, it cannot be written, or another process keeps changing it.
pub fn insert(dirs: &Dirs, dir: &LockedDir, entry: &str, istio: bool) -> Result<Placed, InstallError> {
    for _ in 0..ATTEMPTS {
        let file = choose(dirs)?;
        let is_refused = |owner| matches!(owner, Owner::Istio { ambient } if ambient || !istio);
        if file.list().is_some_and(|list| list.owners().any(is_refused)) {
            // Since it was looked for.
            let path = path_shown(&file.path);
            return Err(InstallError::new(format!("{path}: Istio's agent wrote its entry meanwhile")));
        }
        if file.list().is_some_and(|list| list.is_of_drop_ins()) {
            return Err(InstallError::new(format!(
                "{}: its plugins are drop-in files, which need libcni 1.3: use --drop-in=yes where the runtime has it, or write them \
                 into the list",
                path_shown(&file.path)
            )));
        }
        let placed = match (file.list(), convert::source(dir, &file)?) {
            (Some(_), Some(single)) => convert::convert(dir, &single, Some(&file), entry)?,
            (Some(list), None) => insert_into_list(dir, &file, &list, entry)?,
            (None, _) => convert::convert(dir, &file, None, entry)?,
        };
        if let Some(placed) = placed {
            return Ok(placed);
        }
    }
    Err(contended(dir))
}

fn contended(dir: &LockedDir) -> InstallError {
    let dir = path_shown(dir.path());
    InstallError::new(format!(
        "{dir}: changed {ATTEMPTS} times while it was edited; another program writes to it"
    ))
}

/// `None`: the file changed meanwhile.
fn insert_into_list(
    dir: &LockedDir,
    file: &ConfigFile,
    list: &List<'_>,
    entry: &str,
) -> Result<Option<Placed>, InstallError> {
    list.require_others()
        .map_err(|invalid| InstallError::new(format!("{}: {invalid}", path_shown(&file.path))))?;
    let Some(text) = list.with_entry(entry) else {
        return Ok(Some(Placed { path: file.path.clone(), changed: false }));
    };
    replace(dir, file, &text)
}

fn replace(dir: &LockedDir, file: &ConfigFile, text: &str) -> Result<Option<Placed>, InstallError> {
    let path = files::resolved(&file.path);
    if path.parent() != Some(&files::resolved(dir.path())) {
        let (link, target) = (path_shown(&file.path), path_shown(&path));
        return Err(InstallError::new(format!(
            "{link}: a link to {target}, outside of the directory: not edited; expected a file"
        )));
    }
    let written = dir.write(&path, text.as_bytes(), None, Expected::Bytes(file.text.as_bytes()))?;
    Ok((written == WriteOutcome::Written).then(|| Placed { path: file.path.clone(), changed: true }))
}

/// Takes our entry out of every list of the directory but one, with `istio` Istio's too; a single
/// configuration that was converted comes back as it was. Returns the files that were changed.
///
/// # Errors
/// One cannot be changed; those before are.
pub fn remove(dir: &LockedDir, istio: bool, kept: Option<&Path>) -> Result<Vec<PathBuf>, InstallError> {
    let mut changed = Vec::new();
    // Two symbolic links may have the same target.
    let kept = kept.map(files::resolved);
    for name in configs(dir.path())?.iter().filter(|name| files::has_ending(name, LIST)) {
        let path = dir.path().join(name);
        if kept.as_ref() != Some(&files::resolved(&path)) && remove_from(dir, &path, istio)? {
            changed.push(path);
        }
    }
    Ok(changed)
}

/// Returns whether the file had our entry.
fn remove_from(dir: &LockedDir, path: &Path, istio: bool) -> Result<bool, InstallError> {
    for _ in 0..ATTEMPTS {
        let Ok(file) = ConfigFile::read(path.to_owned())? else { return Ok(false) };
        let Some(list) = file.list() else { return Ok(false) };
        if list.has_entry() && convert::restore(dir, &file, &list)? {
            return Ok(true);
        }
        let text = list.without_entry(istio);
        let text = text.map_err(|invalid| InstallError::new(format!("{}: {invalid}", path_shown(path))))?;
        let Some(text) = text else { return Ok(false) };
        if replace(dir, &file, &text)?.is_some() {
            return Ok(true);
        }
    }
    Err(contended(dir))
}
