//! Standard output.
#![allow(unsafe_code, reason = "no safe wrapper resets how a signal is handled")]

use std::io::{self, IsTerminal as _, Write as _};

use nix::sys::signal::{SigHandler, Signal, raise, signal};

use super::startup;

/// Whether standard output is a terminal.
#[must_use]
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints `text` at once; on a terminal in place of what is there, if `replaces`. Ends the process by SIGPIPE if the reader is
/// gone (`| head`), as it ends other tools.
///
/// # Errors
/// Standard output is closed, or cannot take all of it.
pub fn show(text: &str, replaces: bool) -> io::Result<()> {
    let result = write(text, replaces);
    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        // SAFETY: no handler of ours is replaced, and nothing is left to be done. It returns where the process is an init process.
        let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.and_then(|_| raise(Signal::SIGPIPE));
    }
    result
}

fn write(text: &str, replaces: bool) -> io::Result<()> {
    /// Moves the cursor home and clears the screen (ECMA-48).
    const CLEAR: &str = "\x1b[H\x1b[2J";
    if startup::output_was_closed() && !text.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let mut out = io::stdout().lock();
    if replaces && out.is_terminal() {
        out.write_all(CLEAR.as_bytes())?;
    }
    out.write_all(text.as_bytes())?;
    out.flush()
}
