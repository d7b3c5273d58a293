//! Standard output, for what is printed while the program runs.

use std::io::{self, IsTerminal as _, Write as _};

/// Whether standard output is a terminal.
#[must_use]
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints `text` at once; on a terminal in place of what is there, if `replaces`.
///
/// # Errors
/// Standard output is closed.
pub fn show(text: &str, replaces: bool) -> io::Result<()> {
    /// Moves the cursor home and clears the screen (ECMA-48).
    const CLEAR: &str = "\x1b[H\x1b[2J";
    let mut out = io::stdout().lock();
    if replaces && out.is_terminal() {
        out.write_all(CLEAR.as_bytes())?;
    }
    out.write_all(text.as_bytes())?;
    out.flush()
}
