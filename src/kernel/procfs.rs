//! Reading `/proc` as the current thread sees it.

use std::io;
use std::path::PathBuf;

/// A path below `/proc/thread-self`. Namespaces belong to threads: after `setns` in one, `/proc/self` still shows
/// those of the process's first thread.
pub(super) fn own(path: &str) -> PathBuf {
    let of_thread = PathBuf::from("/proc/thread-self").join(path);
    if of_thread.exists() { of_thread } else { PathBuf::from("/proc/self").join(path) }
}

/// Whether `/proc` shows this process at all.
pub(super) fn is_mounted() -> bool {
    PathBuf::from("/proc/self/status").exists()
}

/// The text of a file.
#[allow(clippy::disallowed_methods, reason = "this is the kernel's edge; the files are the kernel's")]
pub(super) fn read(path: impl AsRef<std::path::Path>) -> io::Result<String> {
    std::fs::read_to_string(path)
}

/// The text of a file, `None` if there is none.
pub(super) fn read_if_present(path: impl AsRef<std::path::Path>) -> io::Result<Option<String>> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
