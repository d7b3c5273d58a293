//! Input that a user names: a file, a pipe or standard input, without a limit of its own.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Stdin};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long a read waits for the writer of a pipe.
const IDLE: Duration = Duration::from_secs(10);

/// Size of the largest file that is read, in bytes: a config file with a million ranges is smaller,
/// `/dev/zero` is not.
const LARGEST_FILE: u64 = 64 << 20;

/// Reads from a file or stream, and fails beyond `LARGEST_FILE`.
#[derive(Debug)]
pub struct Limited<R> {
    source: io::Take<R>,
}

impl<R: Read> Limited<R> {
    /// Reads from `source`.
    #[must_use]
    pub fn new(source: R) -> Self {
        Self { source: source.take(LARGEST_FILE + 1) }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        if self.source.limit() == 0 {
            return Err(io::Error::other(format!("it is larger than {} MiB", LARGEST_FILE >> 20)));
        }
        Ok(length)
    }
}

/// A reader that fails if nothing arrives for `IDLE`, except from a terminal.
#[derive(Debug)]
pub struct TimeoutReader<R> {
    source: R,
    timeout: PollTimeout,
}

/// Opens a file or a named pipe to read it.
///
/// # Errors
/// It cannot be opened.
pub(super) fn open(path: &Path) -> io::Result<Limited<TimeoutReader<File>>> {
    // Opening a pipe would wait for its writer.
    let source = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    Ok(Limited::new(TimeoutReader::new(source)))
}

/// Standard input.
#[must_use]
pub fn stdin() -> Limited<TimeoutReader<Stdin>> {
    Limited::new(TimeoutReader::new(io::stdin()))
}

impl<R: Read + AsFd + IsTerminal> TimeoutReader<R> {
    fn new(source: R) -> Self {
        let wait = PollTimeout::try_from(IDLE).unwrap_or(PollTimeout::MAX);
        let timeout = if source.is_terminal() { PollTimeout::NONE } else { wait };
        Self { source, timeout }
    }

    /// Waits until reading does not block. A pipe that no process has opened for writing yet is not at its
    /// end.
    fn wait(&self) -> io::Result<()> {
        loop {
            let mut ready = [PollFd::new(self.source.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, self.timeout) {
                Ok(0) => {
                    let what = format!("nothing arrived for {} s; is its writer running?", IDLE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                }
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl<R: Read + AsFd + IsTerminal> Read for TimeoutReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}
