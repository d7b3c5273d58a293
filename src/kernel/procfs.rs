//! Reading `/proc` as the current thread sees it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::recording;

/// More than any of the files has that are read here, so that one call reads it.
const USUAL: usize = 4096;

/// The text of a file of this thread, such as `net/sockstat`. Namespaces belong to threads: after `setns` in
/// one, `/proc/self` still shows those of the process's first thread.
pub(super) fn read_own(path: &str) -> io::Result<String> {
    match read(Path::new("/proc/thread-self").join(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => read(Path::new("/proc/self").join(path)),
        other => other,
    }
}

/// The text of a file of this thread; `None` if there is no such file.
pub(super) fn read_own_if_present(path: &str) -> io::Result<Option<String>> {
    if_present(read_own(path))
}

/// Whether this thread has a file.
pub(super) fn own_exists(path: &str) -> bool {
    exists(path, || ["/proc/thread-self", "/proc/self"].iter().any(|own| Path::new(own).join(path).exists()))
}

fn exists(path: &str, look: impl Fn() -> bool) -> bool {
    recording::text(&["there is ", path].concat(), &mut || Ok(look().to_string()))
        .is_ok_and(|found| found == "true")
}

/// Whether `/proc` shows this process at all.
pub(super) fn is_mounted() -> bool {
    exists("/proc", || Path::new("/proc/self/status").exists())
}

/// The text of a file.
pub(super) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    recording::text(&format!("file {}", path.display()), &mut || read_file(path))
}

#[allow(clippy::disallowed_methods, reason = "this is the kernel's edge; the files are the kernel's")]
fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::with_capacity(USUAL);
    // As a plain reader: the size of these files is 0.
    File::open(path)?.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The text of a file, `None` if there is none.
pub(super) fn read_if_present(path: impl AsRef<Path>) -> io::Result<Option<String>> {
    if_present(read(path))
}

fn if_present(read: io::Result<String>) -> io::Result<Option<String>> {
    match read {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
