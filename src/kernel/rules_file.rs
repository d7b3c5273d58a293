//! The file that the restore tool reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::exit::Exit;
use crate::model::Family;
use crate::report::Failure;

/// A rules file, written and ready to be read from its beginning.
#[derive(Debug)]
pub struct RulesFile {
    /// Where it is, for people.
    pub place: String,
    /// Read from here.
    pub file: File,
    /// Keeps a temporary file until the tool is done.
    _temporary: Option<tempfile::NamedTempFile>,
}

/// One path for several files: IPv4 rules in the path itself, IPv6 rules beside it.
#[must_use]
pub fn path_of(path: &Path, family: Family) -> PathBuf {
    match family {
        Family::V4 => path.to_owned(),
        Family::V6 => {
            let mut name = path.as_os_str().to_owned();
            name.push(".v6");
            name.into()
        }
    }
}

/// Writes a rules file that is kept. It has to be a file of its own, since the tool reads it: no link (somebody else's
/// file would be overwritten), no device.
///
/// # Errors
/// The file cannot be written: exit 73.
#[allow(clippy::disallowed_methods, reason = "the edge")]
pub fn keep(option: &str, path: &Path, text: &str) -> Result<RulesFile, Failure> {
    let open = || -> io::Result<File> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let mut file = options.open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        file.set_len(0)?;
        written(&mut file, text)?;
        Ok(file)
    };
    let file = open().map_err(|error| cannot_write(option, path, &error))?;
    Ok(RulesFile { place: path.display().to_string(), file, _temporary: None })
}

/// Writes rules for people to read: to a file, or to whatever else the path names.
///
/// # Errors
/// The path cannot be written to: exit 73.
#[allow(clippy::disallowed_methods, reason = "the edge")]
pub fn show(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| cannot_write(option, path, &error))
}

fn cannot_write(option: &str, path: &Path, error: &io::Error) -> Failure {
    let why = match error.raw_os_error() {
        Some(libc::ELOOP) => "it is a symbolic link".to_owned(),
        _ => error.to_string(),
    };
    Failure::new(Exit::CannotCreate, format!("cannot write {} ({option}): {why}", path.display()))
        .hint("name a file in a directory that exists and is writable, or leave the option out")
}

/// Writes a rules file that goes away: in a temporary directory, or in memory where no directory can be written to.
///
/// # Errors
/// The kernel gives out no memory file either: exit 73.
pub fn temporary(family: Family, text: &str) -> Result<RulesFile, Failure> {
    let prefix = match family {
        Family::V4 => "iptables-rules-",
        Family::V6 => "ip6tables-rules-",
    };
    let directories = [std::env::temp_dir(), PathBuf::from("/run"), PathBuf::from("/dev/shm")];
    let in_directory = |directory: &PathBuf| -> io::Result<RulesFile> {
        let mut temporary = tempfile::Builder::new().prefix(prefix).suffix(".txt").tempfile_in(directory)?;
        written(temporary.as_file_mut(), text)?;
        let place = temporary.path().display().to_string();
        Ok(RulesFile { place, file: temporary.reopen()?, _temporary: Some(temporary) })
    };
    directories.iter().find_map(|directory| in_directory(directory).ok()).map_or_else(|| in_memory(text), Ok)
}

fn in_memory(text: &str) -> Result<RulesFile, Failure> {
    let make = || -> io::Result<File> {
        let mut file = File::from(memfd_create(c"iptables-rules", MFdFlags::MFD_CLOEXEC)?);
        written(&mut file, text)?;
        Ok(file)
    };
    let file = make()
        .map_err(|error| Failure::new(Exit::CannotCreate, format!("cannot make a rules file: {error}")))?;
    Ok(RulesFile { place: "memory (no directory is writable)".to_owned(), file, _temporary: None })
}

fn written(file: &mut File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.rewind()
}

/// Whether the lock file that all iptables tools share can be used.
#[allow(clippy::disallowed_methods, reason = "the edge")]
#[must_use]
pub fn shared_lock_usable() -> bool {
    OpenOptions::new().read(true).append(true).create(true).open("/run/xtables.lock").is_ok()
}

/// Leaves the reason of a failure where Kubernetes looks for it, if that file is there.
#[allow(clippy::disallowed_methods, reason = "the edge")]
pub fn termination_log(text: &str) {
    let path = Path::new("/dev/termination-log");
    if path.exists() {
        // Nothing is left to tell it to, if this fails too.
        let _ = fs::write(path, format!("{text}\n"));
    }
}
