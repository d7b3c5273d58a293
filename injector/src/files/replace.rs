//! Replaces the content of a file of any kind.

use std::fs::{FileType, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Writes a file so that readers see the old content or the new one, never a part. Links are followed; a FIFO
/// or a character device is written into, without waiting for a reader; `-` and `/dev/stdout` are standard
/// output.
///
/// # Errors
///
/// What the system says, or what there is that nothing can be written into.
pub fn replace(name: &str, text: &str) -> io::Result<()> {
    // Its descriptor, not what is behind it: that may be a file that others write into as well.
    if matches!(name, "-" | "/dev/stdout") {
        return super::write("-", text);
    }
    match std::fs::metadata(name) {
        Ok(found) if found.is_file() => {
            in_place_of(&std::fs::canonicalize(name)?, text, Some(found.permissions()))
        }
        Ok(found) => into(name, found.file_type(), text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            in_place_of(&end_of_links(name)?, text, None)
        }
        Err(error) => Err(error),
    }
}

/// Where a link leads, to a file that does not exist yet.
fn end_of_links(name: &str) -> io::Result<PathBuf> {
    /// As many as Linux follows.
    const LINKS: usize = 40;
    let mut path = PathBuf::from(name);
    for _ in 0..LINKS {
        match std::fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(Errno::ELOOP.into())
}

/// Writes a file next to it and renames that.
fn in_place_of(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    // A process of the same number may have been killed here, as in a container.
    let _ = std::fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    let written = file.write_all(text.as_bytes());
    let allowed = written.and_then(|()| permissions.map_or(Ok(()), |same| file.set_permissions(same)));
    allowed.and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

fn into(name: &str, kind: FileType, text: &str) -> io::Result<()> {
    let refused = |what: &str| io::Error::other(format!("{what}; expected a file that can be written"));
    if !(kind.is_fifo() || kind.is_char_device()) {
        let block = kind.is_block_device();
        return Err(refused(match (kind.is_dir(), block) {
            (true, _) => "it is a directory",
            (false, true) => "it is a block device",
            (false, false) => "it is a socket",
        }));
    }
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let opened = OpenOptions::new().write(true).custom_flags(flags).open(name);
    let mut file = opened.map_err(|error| match error.raw_os_error() {
        Some(number) if kind.is_fifo() && number == Errno::ENXIO as i32 => {
            refused("it is a FIFO without a reader")
        }
        _ => error,
    })?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};

    use nix::sys::stat::Mode;

    use super::*;

    fn text(path: &Path) -> &str {
        path.to_str().expect("a path")
    }

    fn content(path: &Path) -> String {
        String::from_utf8(crate::files::read(text(path)).expect("read")).expect("text")
    }

    #[test]
    fn links_stay_and_what_they_lead_to_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        replace(text(&at("target")), "old").expect("made");
        std::fs::set_permissions(at("target"), Permissions::from_mode(0o640)).expect("changed");
        std::fs::create_dir(at("inner")).expect("made");
        symlink("../target", at("inner/link")).expect("a link");
        symlink("inner/link", at("link")).expect("a link");
        let old = std::fs::metadata(at("target")).expect("there").ino();
        replace(text(&at("link")), "new").expect("written");
        assert!(at("link").is_symlink() && at("inner/link").is_symlink());
        assert_eq!(content(&at("target")), "new");
        let found = std::fs::metadata(at("target")).expect("there");
        assert_eq!(found.permissions().mode() & 0o777, 0o640);
        assert_ne!(found.ino(), old, "replaced as a whole");

        symlink("../later", at("inner/to-nowhere")).expect("a link");
        replace(text(&at("inner/to-nowhere")), "first").expect("written");
        assert!(at("inner/to-nowhere").is_symlink());
        assert_eq!(content(&at("later")), "first");
        symlink("round", at("round")).expect("a link");
        assert_eq!(replace(text(&at("round")), "x").expect_err("a loop").raw_os_error(), Some(40));
        let names = std::fs::read_dir(folder.path()).expect("a list");
        assert_eq!(names.count(), 5, "nothing is left beside them");
    }

    #[test]
    fn what_a_killed_process_left_is_not_in_the_way_nor_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, other) = (folder.path().join("ca.crt"), folder.path().join("other"));
        symlink(&other, folder.path().join(format!("ca.crt.{}.new", std::process::id()))).expect("a link");
        replace(text(&file), "new").expect("written");
        assert_eq!(content(&file), "new");
        assert!(!other.exists() && !file.is_symlink());
    }

    #[test]
    fn fifo_is_written_into_or_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o600)).expect("a FIFO");
        let error = replace(text(&fifo), "x").expect_err("no reader").to_string();
        assert!(error.contains("a FIFO without a reader"), "{error}");
        let reader =
            OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&fifo).expect("opened");
        replace(text(&fifo), "new").expect("written");
        assert_eq!(io::read_to_string(reader).expect("read"), "new");
        assert!(std::fs::metadata(&fifo).expect("there").file_type().is_fifo());
    }

    #[test]
    fn directories_and_sockets_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = replace(text(folder.path()), "x").expect_err("a directory").to_string();
        assert_eq!(error, "it is a directory; expected a file that can be written");
        let socket = folder.path().join("socket");
        let _open = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(replace(text(&socket), "x").expect_err("a socket").to_string().contains("a socket"));
        assert!(std::fs::metadata(&socket).expect("there").file_type().is_socket());
    }
}
