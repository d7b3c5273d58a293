//! All file I/O.
#![allow(clippy::disallowed_methods, reason = "files are read and written here, for the whole program")]

use std::fs::FileType;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use istio_iptables::kernel::terminal;

mod large;
mod replace;

pub use large::write_from;
pub(crate) use large::{Input, Spool};
pub use replace::replace;

/// The largest input that is read: 6 MiB, as much as the webhook takes.
pub(crate) const MAX_BYTES: usize = 6 << 20;

/// The name of a file in messages.
#[must_use]
pub(crate) fn called(name: &str) -> &str {
    if name == "-" { "standard input" } else { name }
}

/// What the system says, without its number.
#[must_use]
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split_once(" (os error ").map_or(text.as_str(), |(text, _)| text);
    let full = if error.kind() == io::ErrorKind::StorageFull { ": the disk is full" } else { "" };
    format!("{text}{full}")
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
///
/// What the system says, or that it is too large: a part of a file is not its content.
pub fn read(name: &str) -> io::Result<Vec<u8>> {
    read_at_most(name, MAX_BYTES as u64)
}

/// Reads a file of at most `largest` bytes, or standard input for `-`.
///
/// # Errors
///
/// What the system says, or that it is too large ([`io::ErrorKind::FileTooLarge`]).
pub fn read_at_most(name: &str, largest: u64) -> io::Result<Vec<u8>> {
    let too_large = || {
        let problem = format!("larger than {} MiB, the most that is read", largest >> 20);
        io::Error::new(io::ErrorKind::FileTooLarge, problem)
    };
    let mut bytes = Vec::new();
    if name == "-" {
        io::stdin().lock().take(largest + 1).read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(name)?;
        if file.metadata()?.len() > largest {
            return Err(too_large());
        }
        file.take(largest + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > largest { Err(too_large()) } else { Ok(bytes) }
}

/// Whether a file can be opened for reading; nothing is read from a FIFO.
///
/// # Errors
///
/// What the system says.
pub fn readable(name: &str) -> io::Result<()> {
    let found = std::fs::metadata(name)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if found.is_file() {
        std::fs::File::open(name)?;
    }
    Ok(())
}

/// Reads a file that is looked at again and again while others wait: a regular one, since whatever else has a
/// name may never come to an end.
/// Errors: what the system says, or what is there instead.
pub(crate) fn read_regular(name: &str) -> io::Result<Vec<u8>> {
    // Without it, opening a pipe waits for a writer; on regular files it has no effect.
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(name)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        let what = kind_name(kind);
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("is {what}, expected a regular file"),
        ));
    }
    let mut bytes = Vec::new();
    // One more byte than is accepted: the reader of the text says that it is too long.
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn kind_name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// The files of a name: itself, or the YAML and JSON files of a directory, sorted; with `recursive` those of
/// the directories in it, too, but not of links to some.
pub(crate) fn expand(name: &str, recursive: bool) -> io::Result<Vec<String>> {
    if name == "-" || !Path::new(name).is_dir() {
        return Ok(vec![name.to_owned()]);
    }
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::from(name)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if recursive && path.is_dir() && !path.is_symlink() {
                directories.push(path);
                continue;
            }
            let suffix = path.extension().and_then(|suffix| suffix.to_str());
            // A dangling link stays: reading it reports the problem.
            let readable = path.is_file() || path.is_symlink() && !path.exists();
            if matches!(suffix, Some("yaml" | "yml" | "json")) && readable {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found.into_iter().map(|path| path.to_string_lossy().into_owned()).collect())
}

/// Writes a file, or standard output for `-`. A reader that has gone away ends the process, as it ends other
/// programs.
///
/// # Errors
///
/// What the system says.
pub fn write(name: &str, text: &str) -> io::Result<()> {
    if name != "-" {
        return std::fs::write(name, text);
    }
    terminal::show(text, false)
}
