//! Reads files and directories on the node: completely, and without blocking.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::error::InstallError;

/// Size of the largest file of text that is read, in bytes.
const LARGEST: u64 = 64 << 20;
/// Size of the largest program that is read, in bytes. A program is installed as a whole: a debug build with
/// its symbols has more than [`LARGEST`].
const LARGEST_PROGRAM: u64 = 256 << 20;
/// How much of a file is compared at a time.
const BLOCK: usize = 64 << 10;

/// What reading says of a FIFO, socket, device or directory.
pub const NOT_REGULAR: &str = "not a regular file";

/// Whether a name ends like this, whatever else is in it.
#[must_use]
pub fn has_ending(name: &OsStr, ending: &str) -> bool {
    name.as_bytes().ends_with(ending.as_bytes())
}

/// Whether there is no file, or a broken link.
pub(super) fn leads_nowhere(error: &io::Error) -> bool {
    let raw = error.raw_os_error().map(Errno::from_raw);
    matches!(raw, Some(Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR))
}

/// Without waiting: opening a FIFO waits for a writer.
pub(super) fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Opens a file of bytes for reading. Others are not even opened, which has effects on devices.
///
/// # Errors
/// The file system's, or it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let regular = |metadata: fs::Metadata| {
        if metadata.is_file() { Ok(()) } else { Err(io::Error::other(NOT_REGULAR)) }
    };
    regular(fs::metadata(path)?)?;
    let file = open(path, OFlag::empty())?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// Whether something other than a file of bytes is there: a directory, FIFO, socket or device, links
/// followed.
#[must_use]
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// Reads a whole file; `None` if there is none.
///
/// # Errors
/// The file system's, it is not a regular file, or it is too large.
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
/// The file system's, or it is not a regular file.
pub fn has_bytes(path: &Path, bytes: &[u8]) -> Result<bool, InstallError> {
    let compare = || {
        let mut file = BufReader::with_capacity(BLOCK, open_regular(path)?);
        let mut left = bytes;
        // Another program's may be larger than what is read as a whole.
        loop {
            let block = file.fill_buf()?;
            let length = block.len();
            match left.strip_prefix(block) {
                Some(rest) if length > 0 => left = rest,
                same => return Ok(length == 0 && same.is_some_and(<[u8]>::is_empty)),
            }
            file.consume(length);
        }
    };
    readable(path, compare()).map(|same| same.unwrap_or_default())
}

fn read_start(path: &Path, length: u64) -> Result<Option<Vec<u8>>, InstallError> {
    let read = || {
        let mut bytes = Vec::new();
        open_regular(path)?.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    readable(path, read())
}

/// `None` if the path leads nowhere.
fn readable<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, InstallError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if leads_nowhere(&error) => Ok(None),
        Err(error) => Err(InstallError::io("read", path, &error)),
    }
}

/// The names in a directory, sorted by bytes, without those of directories. Links count whatever they lead
/// to, as in libcni.
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

/// Removes a file. Returns whether it was there.
///
/// # Errors
/// The file system's.
pub fn remove(path: &Path) -> Result<bool, InstallError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(InstallError::io("remove", path, &error)),
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

/// The size of a file; `None` if it does not exist.
#[must_use]
pub fn size(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.len())
}

/// Whether the last write to a file is old enough that its writer has finished; true if the time is unknown.
#[must_use]
pub fn is_settled(path: &Path) -> bool {
    const SETTLED: Duration = Duration::from_secs(2);
    let written = fs::metadata(path).and_then(|metadata| metadata.modified());
    written.ok().and_then(|written| written.elapsed().ok()).is_none_or(|age| age >= SETTLED)
}

/// When a file was changed or got its name; `None` if that is not known.
#[must_use]
pub fn changed(path: &Path) -> Option<Instant> {
    let metadata = fs::metadata(path).ok()?;
    let (seconds, nanos) = (metadata.ctime().try_into().ok()?, metadata.ctime_nsec().try_into().ok()?);
    let age = (UNIX_EPOCH + Duration::new(seconds, nanos)).elapsed().ok()?;
    Instant::now().checked_sub(age)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn file_has_all_bytes_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        assert!(!has_bytes(&path, b"").unwrap());
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
            let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            fs::write(&path, &bytes).unwrap();
            assert!(has_bytes(&path, &bytes).unwrap(), "{length}");
            assert!(!has_bytes(&path, &[&bytes[..], b"x"].concat()).unwrap(), "{length}");
            let Some((last, shorter)) = bytes.split_last() else { continue };
            assert!(!has_bytes(&path, shorter).unwrap(), "{length}");
            assert!(!has_bytes(&path, &[shorter, &[last ^ 1]].concat()).unwrap(), "{length}");
        }
    }
}
