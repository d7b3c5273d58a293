//! The rules file that iptables-restore reads, and the files that a run or a dry run leaves.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use super::memory;
use crate::model::Family;
use crate::text::path_shown;

/// A rules file, written and ready to be read from its beginning.
#[derive(Debug)]
pub struct RulesFile {
    /// The path of the file, for messages.
    pub place: String,
    /// Read from here.
    pub file: File,
}

/// One path for several files: IPv4 rules in the path itself, IPv6 rules beside it.
#[must_use]
pub fn path_of(path: &Path, family: Family) -> PathBuf {
    match family {
        Family::V4 => path.to_owned(),
        Family::V6 => with_ending(path, ".v6"),
    }
}

/// The file for the rules of native nftables, beside those of iptables.
#[must_use]
pub fn native_path_of(path: &Path) -> PathBuf {
    with_ending(path, ".nft")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Writes a rules file that is kept. It has to be a regular file, since the tool reads it: no link (a foreign
/// file would be overwritten), no device.
///
/// # Errors
/// The file cannot be written.
#[allow(clippy::disallowed_methods, reason = "the edge")]
pub fn keep(path: &Path, text: &str) -> io::Result<RulesFile> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let is_new = !path.exists();
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    replace(&mut file, (path, is_new), text)?;
    file.rewind()?;
    Ok(RulesFile { place: path_shown(path), file })
}

/// Gives a regular file this text. Its space is reserved first: on a full disk it keeps the text it has, and
/// a new file goes. In place, since no file can be renamed over one that is a mount point.
#[allow(clippy::disallowed_methods, reason = "the edge")]
fn replace(file: &mut File, (path, is_new): (&Path, bool), text: &str) -> io::Result<()> {
    reserve(file, text.len()).inspect_err(|_| {
        if is_new {
            // The error that is reported says more than one of this.
            let _ = std::fs::remove_file(path);
        }
    })?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len().try_into().unwrap_or(u64::MAX))
}

/// Has the file system set space aside, or fail now. One that cannot is written to without.
fn reserve(file: &File, length: usize) -> io::Result<()> {
    let length = libc::off_t::try_from(length).unwrap_or(libc::off_t::MAX);
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
        Err(errno @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) => Err(errno.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes rules for reading: to a regular file, a terminal or a device such as `/dev/null`. Links are not
/// followed: in a directory that others can write to, one would overwrite a file of ours. The links that
/// stand for this process's own streams (`/dev/stdout`, `/dev/fd/3`) are.
///
/// # Errors
/// The path cannot be written to.
#[allow(clippy::disallowed_methods, reason = "the edge")]
pub fn show(path: &Path, text: &str) -> io::Result<()> {
    let streams = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc/self/fd"];
    let follow = if streams.iter().any(|stream| path.starts_with(stream)) { 0 } else { libc::O_NOFOLLOW };
    let mut options = OpenOptions::new();
    // Without waiting: a pipe may have no reader.
    options.write(true).create(true).custom_flags(follow | libc::O_NONBLOCK | libc::O_NOCTTY);
    let is_new = !path.exists();
    let mut file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() && follow != 0 {
        return replace(&mut file, (path, is_new), text);
    } else if kind.is_file() {
        file.set_len(0)?;
    } else if follow != 0 && !kind.is_char_device() {
        return Err(io::Error::other("it is neither a regular file nor a character device"));
    }
    file.write_all(text.as_bytes())
}

/// Writes a rules file that goes away with the run, however it ends: in memory, or without a name in a
/// temporary directory where the kernel gives out no memory files.
///
/// # Errors
/// Neither is possible.
pub fn temporary(text: &str) -> io::Result<RulesFile> {
    let in_memory = || -> io::Result<RulesFile> {
        let mut file = memory::file(c"iptables-rules", false)?;
        written(&mut file, text)?;
        Ok(RulesFile { place: "memory".to_owned(), file })
    };
    in_memory().or_else(|error| {
        let directories = [std::env::temp_dir(), PathBuf::from("/run"), PathBuf::from("/dev/shm")];
        directories.iter().find_map(|directory| unnamed(directory, text).ok()).ok_or(error)
    })
}

/// A file in `directory` that no other process can name.
fn unnamed(directory: &Path, text: &str) -> io::Result<RulesFile> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
    let mut file = options.open(directory)?;
    written(&mut file, text)?;
    Ok(RulesFile { place: format!("{} (a file without a name)", path_shown(directory)), file })
}

fn written(file: &mut File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.rewind()
}
