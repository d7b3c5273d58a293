//! Files on the node: read whole, replaced whole. A reader finds the old bytes or the new ones, whenever this process ends.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use super::attributes;
use super::error::InstallError;

/// Size of the largest file that is read, in bytes: programs too.
const LARGEST: u64 = 64 << 20;

/// What reading says of a FIFO, socket, device or directory.
pub const NOT_REGULAR: &str = "not a regular file";

/// Temporary files. Libcni loads no file with this ending.
const PREFIX: &str = ".istio-cni.";
const SUFFIX: &str = ".tmp";

/// Permissions of new files: what they hold is no secret.
const MODE: u32 = 0o644;

/// How long to wait for another agent or `uninstall`.
const LOCKED: Duration = Duration::from_secs(10);

/// A directory that no other process of ours changes meanwhile. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct LockedDir {
    path: PathBuf,
    lock: Flock<File>,
}

/// What a file must be for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Not there.
    Absent,
    /// Anything.
    Anything,
}

/// Whether a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was, and the file was read back.
    Yes,
    /// The file is not what was expected any more.
    Changed,
}

impl LockedDir {
    /// Locks a directory, and removes what a process that was killed left in it.
    ///
    /// # Errors
    /// There is none, or another process holds it for 10 s.
    pub fn lock(path: &Path) -> Result<Self, InstallError> {
        let mut file =
            open(path, OFlag::O_DIRECTORY).map_err(|error| InstallError::io("open", path, &error))?;
        let begin = Instant::now();
        let lock = loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => break lock,
                Err((back, Errno::EWOULDBLOCK)) if begin.elapsed() < LOCKED => file = back,
                Err((_, error)) => return Err(InstallError::io("lock", path, &error.into())),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let locked = Self { path: path.to_owned(), lock };
        for name in locked.names()?.iter().filter(|name| is_temporary(name)) {
            locked.remove(&path.join(name))?;
        }
        Ok(locked)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its files, sorted as libcni sorts them.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> Result<Vec<String>, InstallError> {
        names(&self.path)
    }

    /// Writes a whole file of this directory, synchronized to disk. An existing file's owner, permissions and label stay; a
    /// new one has those of `like`.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(
        &self,
        path: &Path,
        bytes: &[u8],
        like: Option<&Path>,
        expected: Expected<'_>,
    ) -> Result<Written, InstallError> {
        let existing = |path: &Path| match open_regular(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|error| InstallError::io("open", path, &error)),
        };
        let mut old = existing(path)?;
        if let (None, Some(like)) = (&old, like) {
            old = existing(like)?;
        }
        let temporary = self.temporary(path, bytes, MODE, old.as_ref())?;
        let written = self.put(&temporary, path, bytes, expected);
        if !matches!(written, Ok(Written::Yes)) {
            // The first error is reported; what is left is removed under the next lock.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Writes a temporary file beside `path`, with the permissions, or with all that a file has besides its bytes.
    ///
    /// # Errors
    /// The file system's.
    pub fn temporary(
        &self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        like: Option<&File>,
    ) -> Result<PathBuf, InstallError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = self.path.join(format!("{PREFIX}{name}{SUFFIX}"));
        let create = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(bytes)?;
            match like {
                Some(like) => attributes::copy(like, &file)?,
                None => file.set_permissions(Permissions::from_mode(mode))?,
            }
            file.sync_all()
        };
        create().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            InstallError::io("write", &temporary, &error)
        })?;
        Ok(temporary)
    }

    /// Puts a temporary file in the place of `path`, and reads it back.
    ///
    /// # Errors
    /// The file system's.
    pub fn put(
        &self,
        temporary: &Path,
        path: &Path,
        bytes: &[u8],
        expected: Expected<'_>,
    ) -> Result<Written, InstallError> {
        let put = match expected {
            Expected::Bytes(old) => {
                if read(path)?.as_deref() != Some(old) {
                    return Ok(Written::Changed);
                }
                fs::rename(temporary, path)
            }
            // Unlike a rename, this fails if the file is there.
            Expected::Absent => match fs::hard_link(temporary, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(Written::Changed),
                linked => linked.and_then(|()| fs::remove_file(temporary)),
            },
            Expected::Anything => fs::rename(temporary, path),
        };
        put.and_then(|()| self.sync()).map_err(|error| InstallError::io("write", path, &error))?;
        if read(path)?.as_deref() == Some(bytes) { Ok(Written::Yes) } else { Ok(Written::Changed) }
    }

    /// Renames a file of this directory.
    ///
    /// # Errors
    /// The file system's.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), InstallError> {
        let renamed = fs::rename(from, to).and_then(|()| self.sync());
        renamed.map_err(|error| InstallError::io("rename", from, &error))
    }

    /// Removes a file of this directory, if it is there.
    ///
    /// # Errors
    /// The file system's.
    pub fn remove(&self, path: &Path) -> Result<(), InstallError> {
        match fs::remove_file(path).and_then(|()| self.sync()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(InstallError::io("remove", path, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Makes runtimes read the directory again, which watch no directory in it: containerd reacts to a file of any name that is
    /// written or removed, CRI-O to one that is made.
    ///
    /// # Errors
    /// The file system's.
    pub fn notify_watchers(&self) -> Result<(), InstallError> {
        let temporary = self.temporary(&self.path.join("changed"), b"\n", 0o600, None)?;
        self.remove(&temporary)
    }

    fn sync(&self) -> io::Result<()> {
        self.lock.sync_all()
    }
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Whether a process that was killed has left a file in a directory.
///
/// # Errors
/// It cannot be read.
pub fn has_temporary(dir: &Path) -> Result<bool, InstallError> {
    Ok(names(dir)?.iter().any(|name| is_temporary(name)))
}

/// Without waiting: opening a FIFO waits for a writer.
fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Opens a file of bytes for reading. Others are not even opened, which has effects on devices.
///
/// # Errors
/// The file system's, or it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let regular = |metadata: fs::Metadata| {
        if metadata.is_file() { Ok(()) } else { Err(io::Error::other(NOT_REGULAR)) }
    };
    regular(fs::metadata(path)?)?;
    let file = open(path, OFlag::empty())?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// Whether something other than a file of bytes is there: a directory, FIFO, socket or device, links followed.
#[must_use]
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// Reads a whole file; `None` if there is none.
///
/// # Errors
/// The file system's, it is no regular file, or it is too large.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    let read = || {
        let mut bytes = Vec::new();
        open_regular(path)?.take(LARGEST).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    match read() {
        Ok(bytes) if bytes.len() as u64 == LARGEST => {
            let problem = format!("{}: larger than {} MiB", path_shown(path), LARGEST >> 20);
            Err(InstallError::new(problem))
        }
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(InstallError::io("read", path, &error)),
    }
}

/// The names in a directory that are valid UTF-8, sorted by bytes, without those of directories. Links count whatever they
/// lead to, as in libcni.
///
/// # Errors
/// It cannot be read.
pub fn names(dir: &Path) -> Result<Vec<String>, InstallError> {
    entries(dir, |entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()))
}

/// The names of the directories in a directory, and of links to directories.
///
/// # Errors
/// It cannot be read.
pub fn directories(dir: &Path) -> Result<Vec<String>, InstallError> {
    entries(dir, |entry| fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()))
}

fn entries(dir: &Path, is_wanted: impl Fn(&fs::DirEntry) -> bool) -> Result<Vec<String>, InstallError> {
    let listed = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let listed = listed.map_err(|error| InstallError::io("read", dir, &error))?;
    let wanted = listed.iter().filter(|entry| is_wanted(entry));
    let mut names: Vec<String> = wanted.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Makes a directory and those above it.
///
/// # Errors
/// The file system's.
pub fn create_dir(path: &Path) -> Result<(), InstallError> {
    fs::create_dir_all(path).map_err(|error| InstallError::io("create", path, &error))
}

/// Removes a directory with everything in it, if it is there.
///
/// # Errors
/// The file system's.
pub fn remove_dir(path: &Path) -> Result<(), InstallError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(InstallError::io("remove", path, &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes a directory that is empty; leaves any other.
pub fn remove_empty_dir(path: &Path) {
    // Another plugin's files may be in it, or it is not there.
    let _ = fs::remove_dir(path);
}

/// Where a path leads to, with all links followed.
#[must_use]
pub fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// How many bytes a file has; `None` if it is not there.
#[must_use]
pub fn size(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.len())
}

/// How long ago a file was written; `None` if that is not known.
#[must_use]
pub fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
}
