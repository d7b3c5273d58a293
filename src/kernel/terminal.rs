//! Standard output.
#![allow(
    unsafe_code,
    reason = "no safe wrapper resets how a signal is handled, or asks for the size of a terminal"
)]

use std::io::{self, IsTerminal as _, Write as _};

use nix::sys::signal::{SigHandler, Signal, raise, signal};

use super::startup;

/// Whether standard output is a terminal.
#[must_use]
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// The columns of the terminal that standard output is, if it is one.
#[must_use]
pub fn width() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize to the address, which is of one.
    let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    (done && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Prints `text` at once; on a terminal in place of what is there, if `replaces`. Ends the process by SIGPIPE
/// if the reader is gone (`| head`), as it ends other tools.
///
/// # Errors
/// Standard output is closed, or cannot take all of it.
pub fn show(text: &str, replaces: bool) -> io::Result<()> {
    let result = write(text, replaces);
    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        // SAFETY: no handler of ours is replaced, and nothing is left to be done. It returns where the
        // process is an init process.
        let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.and_then(|_| raise(Signal::SIGPIPE));
    }
    result
}

/// Checks that standard output was open when the process started: what is in its place accepts everything,
/// also from a program that this one becomes.
///
/// # Errors
/// It was closed.
pub fn output_is_open() -> io::Result<()> {
    if startup::output_was_closed() { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
}

fn write(text: &str, replaces: bool) -> io::Result<()> {
    /// Moves the cursor home and clears the screen (ECMA-48).
    const CLEAR: &str = "\x1b[H\x1b[2J";
    if !text.is_empty() {
        output_is_open()?;
    }
    let mut out = io::stdout().lock();
    if replaces && out.is_terminal() {
        out.write_all(CLEAR.as_bytes())?;
    }
    out.write_all(text.as_bytes())?;
    out.flush()
}
