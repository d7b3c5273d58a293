//! Configurations of a single plugin: converted into a list of that plugin and ours, and restored by
//! uninstall.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use istio_iptables::text::path_shown;

use super::config_file::{ConfigFile, Placed, SINGLE};
use super::error::InstallError;
use super::files;
use super::locked_dir::{Expected, LockedDir, WriteOutcome};
use super::splice::{List, Single};

/// The list that a single configuration becomes: `-` sorts before `.`, so the list is the first of the two.
const CONVERTED: &str = "-istio.conflist";
/// The single configuration that a list was made of. With a number, if another program's file has the name.
const BACKUP: &str = ".istio-cni-backup";

/// The single configuration that a list of ours was made of, if it is there again: another program wrote it,
/// or this one was killed before it renamed it.
///
/// # Errors
/// A file cannot be read.
pub(super) fn source(dir: &LockedDir, file: &ConfigFile) -> Result<Option<ConfigFile>, InstallError> {
    let Some(stem) = converted_stem(&file.path) else { return Ok(None) };
    let Some(list) = file.list().filter(List::has_entry) else { return Ok(None) };
    for ending in SINGLE {
        let path = sibling(dir, &stem, ending);
        let Ok(single) = ConfigFile::read(path.clone())? else { continue };
        let backups = texts(&backups(dir, &path)?)?;
        let is_of_network =
            |text: &String| Single::parse(text).is_ok_and(|one| one.name() == Some(list.name()));
        let is_new = if is_source(&single.text, &list) {
            // Unchanged: renaming it again would start a loop with a program that restores it.
            !backups.iter().any(|text| is_source(text, &list))
        } else {
            backups.iter().any(is_of_network)
        };
        if is_new {
            return Ok(Some(single));
        }
    }
    Ok(None)
}

fn is_source(text: &str, list: &List<'_>) -> bool {
    Single::parse(text).is_ok_and(|single| single.is_source_of(list))
}

fn texts(paths: &[PathBuf]) -> Result<Vec<String>, InstallError> {
    paths.iter().filter_map(|path| text(path).transpose()).collect()
}

/// `None`: not a regular file, or not UTF-8.
fn text(path: &Path) -> Result<Option<String>, InstallError> {
    if files::is_special(path) {
        return Ok(None);
    }
    Ok(files::read(path)?.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// Whether a file has the name of the list that a single configuration becomes.
pub(super) fn is_made_of(list: &OsStr, single: &str) -> bool {
    let is_single = |stem: OsString| {
        SINGLE.iter().any(|ending| single.strip_suffix(ending).is_some_and(|name| stem == name))
    };
    stem(list, CONVERTED).is_some_and(is_single)
}

fn converted_stem(path: &Path) -> Option<OsString> {
    stem(path.file_name()?, CONVERTED)
}

/// A name without its ending.
fn stem(name: &OsStr, ending: &str) -> Option<OsString> {
    name.as_bytes().strip_suffix(ending.as_bytes()).map(|stem| OsStr::from_bytes(stem).to_owned())
}

fn sibling(dir: &LockedDir, stem: &OsStr, ending: &str) -> PathBuf {
    let mut name = stem.to_owned();
    name.push(ending);
    dir.path().join(name)
}

fn backup(single: &Path, number: usize) -> PathBuf {
    let mut name = single.as_os_str().to_owned();
    name.push(BACKUP);
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name.into()
}

/// Existing files with the name of a backup, ordered by number.
fn backups(dir: &LockedDir, single: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let names = files::names(dir.path())?;
    let is_there = |path: &PathBuf| names.iter().any(|name| path.file_name() == Some(name));
    Ok((0..names.len()).map(|number| backup(single, number)).filter(is_there).collect())
}

/// Writes the list, in place of `old` if that is ours already, then renames the single configuration: at
/// every instant one of both is the first valid file. `None`: a file changed meanwhile.
///
/// # Errors
/// The configuration cannot be a list, another program's file has the list's name, or a file cannot be
/// written.
pub(super) fn convert(
    dir: &LockedDir,
    single: &ConfigFile,
    old: Option<&ConfigFile>,
    entry: &str,
) -> Result<Option<Placed>, InstallError> {
    let name = single.path.file_name().unwrap_or_default();
    let stem = SINGLE.iter().find_map(|ending| stem(name, ending)).unwrap_or_else(|| name.to_owned());
    let path = sibling(dir, &stem, CONVERTED);
    let list = Single::parse(&single.text).and_then(|single| single.to_list(entry));
    let list =
        list.map_err(|invalid| InstallError::new(format!("{}: {invalid}", path_shown(&single.path))))?;
    if old.is_none() && path.symlink_metadata().is_ok() {
        let (path, single) = (path_shown(&path), path_shown(&single.path));
        return Err(InstallError::new(format!(
            "{path}: not ours; {single} becomes a list of that name; remove the file or rename it"
        )));
    }
    if old.is_none_or(|old| old.text != list) {
        let expected = old.map_or(Expected::Absent, |old| Expected::Bytes(old.text.as_bytes()));
        // The list gets the permissions of the single configuration.
        if dir.write(&path, list.as_bytes(), Some(&single.path), expected)? == WriteOutcome::Conflict {
            return Ok(None);
        }
    }
    // A version that was written meanwhile would be lost.
    if files::read(&single.path)?.as_deref() != Some(single.text.as_bytes()) {
        return Ok(None);
    }
    keep(dir, single, old)?;
    Ok(Some(Placed { path, changed: true }))
}

/// Renames a single configuration, in place of the one that the list was made of before.
fn keep(dir: &LockedDir, single: &ConfigFile, old: Option<&ConfigFile>) -> Result<(), InstallError> {
    let old = old.and_then(ConfigFile::list);
    for number in 0.. {
        let path = backup(&single.path, number);
        if path.symlink_metadata().is_err() {
            return dir.rename(&single.path, &path);
        }
        let is_ours =
            |text: &String| *text == single.text || old.as_ref().is_some_and(|old| is_source(text, old));
        if text(&path)?.as_ref().is_some_and(is_ours) {
            return dir.replace(&single.path, &path);
        }
    }
    Ok(())
}

/// Puts a converted configuration back; false if the list was not made by us, or was changed since.
///
/// # Errors
/// A file cannot be read, renamed or removed.
pub(super) fn restore(dir: &LockedDir, file: &ConfigFile, list: &List<'_>) -> Result<bool, InstallError> {
    let Some(stem) = converted_stem(&file.path) else { return Ok(false) };
    for ending in SINGLE {
        let single = sibling(dir, &stem, ending);
        let mut sources = Vec::new();
        for path in [vec![single.clone()], backups(dir, &single)?].concat() {
            if text(&path)?.is_some_and(|text| is_source(&text, list)) {
                sources.push(path);
            }
        }
        let Some(source) = sources.first() else { continue };
        // The list is the first file until it is removed; a newer single configuration is not overwritten.
        if single.symlink_metadata().is_err() {
            dir.rename(source, &single)?;
        }
        dir.remove(&file.path)?;
        for source in sources.iter().filter(|source| **source != single) {
            dir.remove(source)?;
        }
        return Ok(true);
    }
    Ok(false)
}
