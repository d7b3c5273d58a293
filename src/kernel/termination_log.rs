//! `/dev/termination-log`, from which Kubernetes takes the reason of a container's failure.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use crate::text::printable;

/// Leaves the reason of a failure where Kubernetes looks for it, if that file is there. Only a regular file
/// is: a pipe without a reader would block.
#[allow(clippy::disallowed_methods, reason = "the edge")]
pub fn write(text: &str) {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    // Nothing is left to report it to, if this fails too.
    if let Ok(mut file) = options.open("/dev/termination-log")
        && file.metadata().is_ok_and(|metadata| metadata.is_file())
        && file.set_len(0).is_ok()
    {
        let _ = file.write_all(format!("{}\n", printable(text)).as_bytes());
    }
}
