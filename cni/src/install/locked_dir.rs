//! Atomic writes: a reader finds the old content or the new one, whenever this process ends.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag, RenameFlags, renameat2};

use super::attributes;
use super::error::InstallError;
use super::files::{has_bytes, has_ending, leads_nowhere, names, open, open_regular};

/// Temporary files. Libcni loads no file with this ending.
const PREFIX: &str = ".istio-cni.";
const SUFFIX: &str = ".tmp";

/// Permissions of new files: their content is not secret.
const MODE: u32 = 0o644;

/// The time to wait for another agent or `uninstall`.
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
    /// The file has these bytes.
    Bytes(&'a [u8]),
    /// Not there.
    Absent,
    /// Anything.
    Anything,
}

/// Whether a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The change was made, and the file was read back.
    Written,
    /// The file is not what was expected any more.
    Conflict,
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

    /// Writes a whole file of this directory, synchronized to disk. An existing file's owner, permissions and
    /// label stay; a new one has those of `like`.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(
        &self,
        path: &Path,
        bytes: &[u8],
        like: Option<&Path>,
        expected: Expected<'_>,
    ) -> Result<WriteOutcome, InstallError> {
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
        if !matches!(written, Ok(WriteOutcome::Written)) {
            // The first error is reported; what is left is removed under the next lock.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Writes a temporary file next to `path`, with the given permissions, or with all attributes of a file.
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
    ) -> Result<WriteOutcome, InstallError> {
        let put = match expected {
            Expected::Bytes(old) => {
                if !has_bytes(path, old)? {
                    return Ok(WriteOutcome::Conflict);
                }
                fs::rename(temporary, path)
            }
            // Unlike a rename, this fails if the file is there.
            Expected::Absent => match fs::hard_link(temporary, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Ok(WriteOutcome::Conflict);
                }
                linked => linked.and_then(|()| fs::remove_file(temporary)),
            },
            Expected::Anything => fs::rename(temporary, path),
        };
        put.and_then(|()| self.sync()).map_err(|error| InstallError::io("write", path, &error))?;
        if has_bytes(path, bytes)? { Ok(WriteOutcome::Written) } else { Ok(WriteOutcome::Conflict) }
    }

    /// Renames a file of this directory to a name that no other file has.
    ///
    /// # Errors
    /// The file system's, or another file has the name.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), InstallError> {
        let renamed = match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
            // Not every file system supports RENAME_NOREPLACE.
            Err(Errno::EINVAL) if to.symlink_metadata().is_err() => fs::rename(from, to),
            renamed => renamed.map_err(io::Error::from),
        };
        renamed.and_then(|()| self.sync()).map_err(|error| InstallError::io("rename", from, &error))
    }

    /// Renames a file of this directory, in place of another one.
    ///
    /// # Errors
    /// The file system's.
    pub fn replace(&self, from: &Path, to: &Path) -> Result<(), InstallError> {
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

    /// Makes runtimes read the directory again, which watch no directory in it: containerd reacts to a file
    /// of any name that is written or removed, CRI-O to one that is made.
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

/// Whether a process that was killed has left a file in a directory.
///
/// # Errors
/// It cannot be read.
pub fn has_temporary(dir: &Path) -> Result<bool, InstallError> {
    Ok(names(dir)?.iter().any(|name| is_temporary(name)))
}

/// Whether a name is that of a temporary file of ours.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes()) && has_ending(name, SUFFIX)
}
