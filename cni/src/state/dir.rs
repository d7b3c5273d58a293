//! The directory of state files.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use istio_iptables::text::path_shown;
use nix::fcntl::{Flock, FlockArg};
use serde::Deserialize;
use serde_json::error::Category;

use super::{State, VERSION};
use crate::environment::AttachmentId;
use crate::error::{CniError, Code};

/// Size of the file that STATUS writes, in bytes: a state file with long lists has as many.
const PROBE: usize = 16 << 10;

/// What identifies a state file: each writing makes a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    inode: u64,
    /// When it was written.
    pub written: SystemTime,
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
        self.0.join(format!("{}.json", name(id)))
    }

    /// Writes a state file; a reader finds the whole file or none.
    ///
    /// # Errors
    /// Code 5.
    pub fn write(&self, id: &AttachmentId, state: &State) -> Result<(), CniError> {
        let path = self.path(id);
        let failed = |error: &io::Error| failed("write", &path, error);
        let text = serde_json::to_vec(state).map_err(|error| failed(&error.into()))?;
        let temporary = self.temporary(id);
        let write = || {
            self.create()?;
            let mut file = lock_new(&temporary)?;
            file.set_len(0)?;
            file.write_all(&text)?;
            // The lock is kept until the file has its name.
            fs::rename(&temporary, &path)
        };
        write().map_err(|error| failed(&error))
    }

    /// Marks an attachment until its state is written, or DEL: an ADD that is killed may leave a part of the
    /// rules.
    ///
    /// # Errors
    /// The directory or the file cannot be made.
    pub fn begin(&self, id: &AttachmentId) -> io::Result<()> {
        self.create()?;
        lock_new(&self.temporary(id)).map(drop)
    }

    /// Whether it is marked, or an ADD was killed that wrote its state.
    #[must_use]
    pub fn is_begun(&self, id: &AttachmentId) -> bool {
        self.temporary(id).exists()
    }

    /// One for each attachment, so that DEL finds what a killed ADD has left.
    fn temporary(&self, id: &AttachmentId) -> PathBuf {
        self.0.join(format!(".{}.tmp", name(id)))
    }

    /// What a process that was killed leaves of it is removed by GC.
    fn probe(&self) -> io::Result<()> {
        self.create()?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!(".status.{}.{}.tmp", std::process::id(), since.as_nanos());
        let path = self.0.join(name);
        let written = lock_new(&path).and_then(|mut file| file.write_all(&[b' '; PROBE]));
        let removed = fs::remove_file(&path);
        written.and(removed)
    }

    fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// Reads a state file; `None` if there is none that can be used.
    ///
    /// # Errors
    /// Code 5.
    pub fn read(&self, id: &AttachmentId) -> Result<Option<State>, CniError> {
        match read(&self.path(id)) {
            Ok(state) => Ok(Some(state)),
            Err(Unread::Gone | Unread::Unusable(_)) => Ok(None),
            Err(Unread::Failed(error)) => Err(error),
        }
    }

    /// Removes a state file, if it is there, but no mark.
    ///
    /// # Errors
    /// Code 5.
    pub fn forget(&self, id: &AttachmentId) -> Result<(), CniError> {
        remove(&self.path(id))
    }

    /// Removes a state file, if it is there, and what an ADD that was killed has left of it.
    ///
    /// # Errors
    /// Code 5.
    pub fn remove(&self, id: &AttachmentId) -> Result<(), CniError> {
        remove(&self.path(id)).and(remove(&self.temporary(id)))
    }

    /// Removes the files of attachments of this network that are not listed, and temporary files of others
    /// that no process writes. Returns how many.
    ///
    /// # Errors
    /// Code 5: the first file that cannot be removed; the others are.
    pub fn collect(&self, network: &str, valid: &[AttachmentId]) -> Result<usize, CniError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed("read", &self.0, &error)),
        };
        let kept: Vec<PathBuf> = valid.iter().flat_map(|id| [self.path(id), self.temporary(id)]).collect();
        let (mut removed, mut first) = (0, Ok(()));
        for entry in entries.flatten() {
            let path = entry.path();
            let is_garbage = match path.extension().and_then(|ending| ending.to_str()) {
                Some("json") => !kept.contains(&path) && is_of(&path, network),
                Some("tmp") => {
                    removed += usize::from(!kept.contains(&path) && remove_abandoned(&path));
                    false
                }
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

    /// Whether it is there: the plugin makes it for the first pod.
    ///
    /// # Errors
    /// That cannot be seen.
    pub fn is_there(&self) -> io::Result<bool> {
        fs::exists(&self.0)
    }

    /// The names of the state files, and which file has each.
    ///
    /// # Errors
    /// The directory cannot be made or read.
    pub fn files(&self) -> io::Result<Vec<(OsString, FileStamp)>> {
        self.create()?;
        let entries = fs::read_dir(&self.0)?.flatten();
        let states = entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "json"));
        // One that is removed meanwhile is not there.
        Ok(states.filter_map(|entry| Some((entry.file_name(), self.stamp(&entry.file_name())?))).collect())
    }

    /// Which file has this name now, of whatever kind it is; `None` if there is none.
    #[must_use]
    pub fn stamp(&self, name: &OsStr) -> Option<FileStamp> {
        let path = self.0.join(name);
        // Of a link that leads nowhere there is the link.
        let metadata = fs::metadata(&path).or_else(|_| fs::symlink_metadata(&path)).ok()?;
        Some(FileStamp { inode: metadata.ino(), written: metadata.modified().ok()? })
    }

    /// Reads the file of this name.
    ///
    /// # Errors
    /// Why it cannot be used, for a message.
    pub fn read_named(&self, name: &OsStr) -> Result<State, String> {
        read(&self.0.join(name)).map_err(|unread| match unread {
            Unread::Gone => "it is gone, or a link to nothing".to_owned(),
            Unread::Unusable(why) => why,
            Unread::Failed(error) => error.msg,
        })
    }

    /// The containers that have a state file, by its name alone.
    #[must_use]
    pub fn containers(&self) -> BTreeSet<String> {
        let names = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| Self::container(name.to_str()?).map(str::to_owned)).collect()
    }

    /// The container of a state file, by its name.
    #[must_use]
    pub fn container(name: &str) -> Option<&str> {
        Some(name.strip_suffix(".json")?.rsplit_once('.')?.0)
    }

    /// Where the files are.
    #[must_use]
    pub fn path_of_dir(&self) -> &Path {
        &self.0
    }

    /// The number of state files.
    #[must_use]
    pub fn count(&self) -> usize {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "json")).count()
    }

    /// Whether files can be written: writes one as ADD does, and removes it. Permissions do not say whether
    /// there is space.
    ///
    /// # Errors
    /// Code 50.
    pub fn writable(&self) -> Result<(), CniError> {
        self.probe().map_err(|error| {
            let path = path_shown(&self.0);
            CniError::new(
                Code::NotAvailable,
                format!("cannot write to {path}: {error}; make it writable, or set cni_agent_run_dir to another directory"),
            )
        })
    }
}

/// The name of an attachment's files: behind the last dot is the interface, with `:` for its own dots, which
/// no interface has in its name.
fn name(id: &AttachmentId) -> String {
    format!("{}.{}", id.container, id.interface.replace('.', ":"))
}

/// Makes a file, or takes one that a killed process has left, and locks it: GC removes it only without its
/// lock, which the kernel gives up when the process ends.
fn lock_new(path: &Path) -> io::Result<Flock<File>> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    loop {
        let file = options.open(path)?;
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
            io::Error::other(format!("another ADD of the same attachment runs: {error}"))
        })?;
        // Between the two, GC may have removed it.
        if is_at(&locked, path) {
            return Ok(locked);
        }
    }
}

/// Whether a path still names this file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let id = |metadata: Metadata| (metadata.dev(), metadata.ino());
    file.metadata().is_ok_and(|ours| fs::metadata(path).is_ok_and(|there| id(there) == id(ours)))
}

/// Removes a temporary file unless a process holds it. Returns whether it was removed.
#[allow(clippy::disallowed_methods, reason = "state files are opened here")]
fn remove_abandoned(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // What cannot be removed now is garbage of the next GC.
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .is_ok_and(|locked| is_at(&locked, path) && fs::remove_file(path).is_ok())
}

/// Whether a state file is of this network. One that cannot be read is of none.
fn is_of(path: &Path, network: &str) -> bool {
    read(path).is_ok_and(|state| state.network == network)
}

/// Why there is no state.
enum Unread {
    /// There is no file, or a link to none.
    Gone,
    /// What is there is no state of this version.
    Unusable(String),
    /// The file cannot be read.
    Failed(CniError),
}

fn read(path: &Path) -> Result<State, Unread> {
    let gone_or_failed = |error: &io::Error| {
        let is_gone = error.kind() == io::ErrorKind::NotFound;
        if is_gone { Unread::Gone } else { Unread::Failed(failed("read", path, error)) }
    };
    // To open a FIFO waits for its writer, and to open a device may do something.
    let kind = fs::metadata(path).map_err(|error| gone_or_failed(&error))?.file_type();
    if !kind.is_file() {
        let kind = if kind.is_dir() { "a directory" } else { "a FIFO, a socket or a device" };
        return Err(Unread::Unusable(format!("it is {kind}, not a file")));
    }
    #[allow(clippy::disallowed_methods, reason = "state files are read here")]
    let bytes = fs::read(path).map_err(|error| gone_or_failed(&error))?;
    parse(&bytes).map_err(Unread::Unusable)
}

fn parse(bytes: &[u8]) -> Result<State, String> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }
    let invalid = |error: serde_json::Error| match error.classify() {
        Category::Data => format!("it is not a state of the plugin: {error}"),
        Category::Io | Category::Syntax | Category::Eof => format!("it is not JSON: {error}"),
    };
    let Versioned { version } = serde_json::from_slice(bytes).map_err(invalid)?;
    if version != u64::from(VERSION) {
        return Err(format!("it has version {version} of state files; this plugin reads version {VERSION}"));
    }
    serde_json::from_slice(bytes).map_err(invalid)
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
    use std::collections::BTreeMap;

    use istio_iptables::cli::Key;

    use super::*;
    use crate::environment::LONGEST_CONTAINER;

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
    fn what_is_no_state_is_listed_with_the_reason_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::new(folder.path());
        assert!(dir.files().unwrap().is_empty());
        let path = |name: &str| dir.0.join(format!("{name}.json"));
        nix::unistd::mkfifo(&path("fifo.eth0"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(path("folder.eth0")).unwrap();
        std::os::unix::fs::symlink("nothing", path("link.eth0")).unwrap();
        fs::write(path("text.eth0"), "{").unwrap();
        fs::write(path("other.eth0"), r#"{"version": 1, "pod": 7}"#).unwrap();
        fs::write(path("newer.eth0"), r#"{"version": 2, "attachments": []}"#).unwrap();
        let mut files = dir.files().unwrap();
        files.sort_by(|(one, _), (other, _)| one.cmp(other));
        let reasons: Vec<String> = files.iter().map(|(name, _)| dir.read_named(name).unwrap_err()).collect();
        let expected = [
            "a FIFO",
            "a directory",
            "a link to nothing",
            "version 2",
            "not a state of the plugin",
            "not JSON",
        ];
        assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
        for (reason, part) in reasons.iter().zip(expected) {
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(dir.count(), files.len());
        for container in ["fifo", "folder", "link", "text", "other", "newer"] {
            assert_eq!(dir.read(&id(container)), Ok(None), "{container}");
        }
        assert_eq!(dir.collect("net", &[]), Ok(0));
    }

    #[test]
    fn gc_removes_state_of_detached_containers_of_its_network_only() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::new(folder.path());
        assert_eq!(dir.collect("net", &[]), Ok(0), "without a directory");
        for (container, network) in [("stays", "net"), ("goes", "net"), ("other", "else")] {
            dir.write(&id(container), &state(network, &id(container))).unwrap();
        }
        fs::write(dir.0.join("broken.json"), "{").unwrap();
        fs::write(dir.0.join(".killed.eth0.tmp"), "").unwrap();
        let written = lock_new(&dir.temporary(&id("now"))).unwrap();
        assert_eq!(dir.collect("net", &[id("stays")]), Ok(2));
        let mut left: Vec<_> = fs::read_dir(&dir.0).unwrap().map(|one| one.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".now.eth0.tmp", "broken.json", "other.eth0.json", "stays.eth0.json"]);
        // The kernel ends the lock with the process.
        drop(written);
        assert_eq!(dir.collect("net", &[id("stays")]), Ok(1));
    }

    #[test]
    fn mark_stays_until_the_state_is_written_or_del() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::new(folder.path());
        assert!(!dir.is_begun(&id("x")));
        dir.begin(&id("x")).unwrap();
        dir.forget(&id("x")).unwrap();
        assert_eq!(dir.collect("net", &[id("x")]), Ok(0));
        assert!(dir.is_begun(&id("x")) && dir.files().unwrap().is_empty());
        dir.write(&id("x"), &state("net", &id("x"))).unwrap();
        assert!(!dir.is_begun(&id("x")));
        dir.begin(&id("x")).unwrap();
        dir.remove(&id("x")).unwrap();
        assert!(!dir.is_begun(&id("x")));
    }

    #[test]
    fn state_that_a_killed_add_has_left_is_replaced_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::new(folder.path());
        dir.write(&id("x"), &state("net", &id("x"))).unwrap();
        fs::write(dir.temporary(&id("x")), "longer than any state ".repeat(100)).unwrap();
        let second = state("second", &id("x"));
        dir.write(&id("x"), &second).unwrap();
        assert_eq!(dir.read(&id("x")), Ok(Some(second)));
        fs::write(dir.temporary(&id("x")), "{").unwrap();
        dir.remove(&id("x")).unwrap();
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0);
    }

    #[test]
    fn each_attachment_has_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::new(folder.path());
        let (one, other) =
            (AttachmentId::new("c1", "eth0.5").unwrap(), AttachmentId::new("c1.eth0", "5").unwrap());
        for id in [&one, &other] {
            dir.write(id, &state(&id.container, id)).unwrap();
        }
        dir.remove(&other).unwrap();
        assert_eq!(dir.read(&one), Ok(Some(state("c1", &one))));
    }

    #[test]
    fn longest_names_have_files() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::new(folder.path());
        let id = AttachmentId::new(&"c".repeat(LONGEST_CONTAINER), "fifteen-bytes-x").unwrap();
        dir.write(&id, &state("net", &id)).unwrap();
        assert!(AttachmentId::new(&"c".repeat(LONGEST_CONTAINER + 1), "x").is_err());
    }

    #[test]
    fn directory_that_cannot_be_used_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let dir = StateDir::new(&file);
        assert_eq!(dir.writable().unwrap_err().code, Code::NotAvailable);
        assert_eq!(dir.write(&id("x"), &state("net", &id("x"))).unwrap_err().code, Code::Io);
        let usable = StateDir::new(folder.path());
        usable.writable().unwrap();
        assert_eq!(fs::read_dir(&usable.0).unwrap().count(), 0);
    }
}
