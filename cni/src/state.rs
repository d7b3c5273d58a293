//! State files: one for each captured attachment, `<run_dir>/state/<container>.<interface>.json`.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use istio_iptables::cli::Key;
use istio_iptables::text::path_shown;
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use crate::environment::AttachmentId;
use crate::error::{CniError, Code};

/// The version of the files.
const VERSION: u32 = 1;

/// A temporary file older than this belongs to a process that was killed: none runs so long.
const TEMPORARY: Duration = Duration::from_secs(600);

/// What is known of a captured attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    version: u32,
    /// Version of the plugin that wrote it.
    pub plugin: String,
    /// The network's name.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container: String,
    /// `CNI_IFNAME`.
    pub interface: String,
    /// The pod's namespace and name.
    pub pod: String,
    /// The pod's uid; may be empty.
    pub uid: String,
    /// Inode of the network namespace.
    pub netns: u64,
    /// Capture options by name.
    pub options: BTreeMap<String, String>,
}

impl State {
    /// The state of an attachment.
    #[must_use]
    pub fn new(network: String, id: &AttachmentId, pod: String, uid: String, netns: u64) -> Self {
        Self {
            version: VERSION,
            plugin: env!("CARGO_PKG_VERSION").to_owned(),
            network,
            container: id.container.clone(),
            interface: id.interface.clone(),
            pod,
            uid,
            netns,
            options: BTreeMap::new(),
        }
    }

    /// With these options.
    #[must_use]
    pub fn with_options(mut self, options: &BTreeMap<Key, String>) -> Self {
        self.options = options.iter().map(|(key, text)| (key.spec().name.to_owned(), text.clone())).collect();
        self
    }

    /// The options; `None` if one is not known: another version wrote the file.
    #[must_use]
    pub fn options(&self) -> Option<BTreeMap<Key, String>> {
        let known = |(name, text): (&String, &String)| Some((Key::by_name(name)?, text.clone()));
        self.options.iter().map(known).collect()
    }
}

/// The directory of state files.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Below the run directory.
    #[must_use]
    pub fn new(run_dir: &Path) -> Self {
        Self(run_dir.join("state"))
    }

    fn path(&self, id: &AttachmentId) -> PathBuf {
        self.0.join(format!("{}.{}.json", id.container, id.interface))
    }

    /// Writes a state file; a reader finds the whole file or none.
    ///
    /// # Errors
    /// Code 5.
    pub fn write(&self, id: &AttachmentId, state: &State) -> Result<(), CniError> {
        let path = self.path(id);
        let failed = |error: &io::Error| failed("write", &path, error);
        let text = serde_json::to_vec(state).map_err(|error| failed(&error.into()))?;
        let temporary = self.0.join(format!(".{}.{}.{}.tmp", id.container, id.interface, std::process::id()));
        let write = || {
            self.create()?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(&temporary)?.write_all(&text)?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|error| {
            // The error itself is reported; what is left is removed by GC.
            let _ = fs::remove_file(&temporary);
            failed(&error)
        })
    }

    fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// Reads a state file; `None` if there is none, or one of another version.
    ///
    /// # Errors
    /// Code 5.
    pub fn read(&self, id: &AttachmentId) -> Result<Option<State>, CniError> {
        read(&self.path(id))
    }

    /// Removes a state file, if it is there.
    ///
    /// # Errors
    /// Code 5.
    pub fn remove(&self, id: &AttachmentId) -> Result<(), CniError> {
        remove(&self.path(id))
    }

    /// Removes the files of attachments of this network that are not listed, and old temporary files. Returns how many.
    ///
    /// # Errors
    /// Code 5: the first file that cannot be removed; the others are.
    pub fn collect(&self, network: &str, valid: &[AttachmentId]) -> Result<usize, CniError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed("read", &self.0, &error)),
        };
        let kept: Vec<PathBuf> = valid.iter().map(|id| self.path(id)).collect();
        let (mut removed, mut first) = (0, Ok(()));
        for entry in entries.flatten() {
            let path = entry.path();
            let is_garbage = match path.extension().and_then(|ending| ending.to_str()) {
                Some("json") => !kept.contains(&path) && is_of(&path, network),
                Some("tmp") => entry.metadata().is_ok_and(|metadata| {
                    let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
                    age.is_some_and(|age| age > TEMPORARY)
                }),
                Some(_) | None => false,
            };
            if is_garbage {
                match remove(&path) {
                    Ok(()) => removed += 1,
                    Err(error) => first = first.and(Err(error)),
                }
            }
        }
        first.map(|()| removed)
    }

    /// Whether files can be written.
    ///
    /// # Errors
    /// Code 50.
    pub fn writable(&self) -> Result<(), CniError> {
        let usable = self.create().and_then(|()| Ok(access(&self.0, AccessFlags::W_OK | AccessFlags::X_OK)?));
        usable.map_err(|error| {
            let path = path_shown(&self.0);
            CniError::new(
                Code::NotAvailable,
                format!("cannot write to {path}: {error}; make it writable, or set cni_agent_run_dir to another directory"),
            )
        })
    }
}

/// Whether a state file is of this network. One that cannot be read is of none.
fn is_of(path: &Path, network: &str) -> bool {
    matches!(read(path), Ok(Some(state)) if state.network == network)
}

#[allow(clippy::disallowed_methods, reason = "state files are read here")]
fn read(path: &Path) -> Result<Option<State>, CniError> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok().filter(|state: &State| state.version == VERSION)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, &error)),
    }
}

fn remove(path: &Path) -> Result<(), CniError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> CniError {
    CniError::new(Code::Io, format!("cannot {what} {}: {error}", path_shown(path)))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;

    fn id(container: &str) -> AttachmentId {
        AttachmentId::new(container, "eth0").unwrap()
    }

    fn state(network: &str, id: &AttachmentId) -> State {
        State::new(network.to_owned(), id, "a/b".to_owned(), String::new(), 7)
    }

    #[test]
    fn state_is_read_as_it_was_written_and_removed_twice() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::new(folder.path());
        assert_eq!(dir.read(&id("x")), Ok(None));
        let options = BTreeMap::from([(Key::ProxyUid, "1".to_owned())]);
        let written = state("net", &id("x")).with_options(&options);
        dir.write(&id("x"), &written).unwrap();
        assert_eq!(dir.read(&id("x")), Ok(Some(written.clone())));
        assert_eq!(written.options(), Some(options));
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 1, "no temporary file is left");
        dir.remove(&id("x")).unwrap();
        dir.remove(&id("x")).unwrap();
        assert_eq!(dir.read(&id("x")), Ok(None));
    }

    #[test]
    fn garbage_is_what_is_not_attached_to_this_network() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::new(folder.path());
        assert_eq!(dir.collect("net", &[]), Ok(0), "without a directory");
        for (container, network) in [("stays", "net"), ("goes", "net"), ("other", "else")] {
            dir.write(&id(container), &state(network, &id(container))).unwrap();
        }
        fs::write(dir.0.join("broken.json"), "{").unwrap();
        fs::write(dir.0.join(".now.tmp"), "").unwrap();
        assert_eq!(dir.collect("net", &[id("stays")]), Ok(1));
        let mut left: Vec<_> = fs::read_dir(&dir.0).unwrap().map(|one| one.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".now.tmp", "broken.json", "other.eth0.json", "stays.eth0.json"]);
    }

    #[test]
    fn directory_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let dir = StateDir::new(&file);
        assert_eq!(dir.writable().unwrap_err().code, Code::NotAvailable);
        assert_eq!(dir.write(&id("x"), &state("net", &id("x"))).unwrap_err().code, Code::Io);
        StateDir::new(folder.path()).writable().unwrap();
    }
}
