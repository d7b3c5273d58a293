//! Files on the node: read whole, replaced whole. A reader finds the old bytes or the new ones, whenever this process ends.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use super::attributes;
use super::error::InstallError;

/// Size of the largest file of text that is read, in bytes.
const LARGEST: u64 = 64 << 20;
/// The same of a program, which is installed as a whole: a debug build with its symbols has more than [`LARGEST`].
const LARGEST_PROGRAM: u64 = 256 << 20;

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
        for name in names(path)?.iter().filter(|name| is_temporary(name)) {
            locked.remove(&path.join(name))?;
        }
        Ok(locked)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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
            Err(error) if leads_nowhere(&error) => Ok(None),
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
        let mut name = OsString::from(PREFIX);
        name.push(path.file_name().unwrap_or_default());
        name.push(SUFFIX);
        let temporary = self.path.join(name);
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
                if !has_bytes(path, old)? {
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
        if has_bytes(path, bytes)? { Ok(Written::Yes) } else { Ok(Written::Changed) }
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

fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes()) && has_ending(name, SUFFIX)
}

/// Whether a name ends like this, whatever else is in it.
#[must_use]
pub fn has_ending(name: &OsStr, ending: &str) -> bool {
    name.as_bytes().ends_with(ending.as_bytes())
}

/// Whether there is no file, or a link to none: to itself, or below a file.
fn leads_nowhere(error: &io::Error) -> bool {
    let raw = error.raw_os_error().map(Errno::from_raw);
    matches!(raw, Some(Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR))
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
    read_whole(path, LARGEST)
}

/// [`read`] for a program.
///
/// # Errors
/// As of [`read`].
pub fn read_program(path: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    read_whole(path, LARGEST_PROGRAM)
}

fn read_whole(path: &Path, largest: u64) -> Result<Option<Vec<u8>>, InstallError> {
    match read_start(path, largest + 1)? {
        Some(bytes) if bytes.len() as u64 > largest => {
            let problem = format!("{}: larger than {} MiB", path_shown(path), largest >> 20);
            Err(InstallError::new(problem))
        }
        read => Ok(read),
    }
}

/// Whether a file has these bytes, and no more.
///
/// # Errors
/// The file system's, or it is no regular file.
pub fn has_bytes(path: &Path, bytes: &[u8]) -> Result<bool, InstallError> {
    // Another program's may be larger than what is read as a whole.
    Ok(read_start(path, bytes.len() as u64 + 1)?.as_deref() == Some(bytes))
}

fn read_start(path: &Path, length: u64) -> Result<Option<Vec<u8>>, InstallError> {
    let read = || {
        let mut bytes = Vec::new();
        open_regular(path)?.take(length).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if leads_nowhere(&error) => Ok(None),
        Err(error) => Err(InstallError::io("read", path, &error)),
    }
}

/// The names in a directory, sorted by bytes, without those of directories. Links count whatever they lead to, as in libcni.
///
/// # Errors
/// It cannot be read.
pub fn names(dir: &Path) -> Result<Vec<OsString>, InstallError> {
    entries(dir, |entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()))
}

/// The names of the directories in a directory, and of links to directories.
///
/// # Errors
/// It cannot be read.
pub fn directories(dir: &Path) -> Result<Vec<OsString>, InstallError> {
    entries(dir, |entry| fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()))
}

fn entries(dir: &Path, is_wanted: impl Fn(&fs::DirEntry) -> bool) -> Result<Vec<OsString>, InstallError> {
    let listed = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let listed = listed.map_err(|error| InstallError::io("read", dir, &error))?;
    let wanted = listed.iter().filter(|entry| is_wanted(entry));
    let mut names: Vec<OsString> = wanted.map(fs::DirEntry::file_name).collect();
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
