//! The deadline (timeout) of a command, and the signals that end it early.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::netconf::{DEADLINE, LARGEST};

/// The deadline of a command: waits for files to be readable until then, or until a signal.
#[derive(Debug)]
pub struct Deadline {
    begin: Instant,
    limit: Cell<Duration>,
    signals: Option<SignalFd>,
}

/// Why a command ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The command took too long.
    Deadline(Duration),
    /// The runtime ended it.
    Signal,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(limit) => write!(
                f,
                "not done after {} ms (deadline_ms); rules that are already in place are kept",
                limit.as_millis()
            ),
            Self::Signal => {
                f.write_str("ended by SIGTERM or SIGINT; rules that are already in place are kept")
            }
        }
    }
}

impl Deadline {
    /// Begins now. SIGTERM and SIGINT do not end the process any more: they interrupt what it waits for.
    #[must_use]
    pub fn start() -> Self {
        let mut set = SigSet::empty();
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGINT);
        // Without it a signal ends the process, as by default.
        let signals =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).ok().filter(|_| set.thread_block().is_ok());
        Self { begin: Instant::now(), limit: Cell::new(DEADLINE), signals }
    }

    /// Begins now, in a process that is not ended by the runtime: signals keep their effect.
    #[must_use]
    pub fn without_signals() -> Self {
        Self { begin: Instant::now(), limit: Cell::new(DEADLINE), signals: None }
    }

    /// Sets the deadline, from the beginning on.
    pub fn set(&self, limit: Duration) {
        self.limit.set(limit);
    }

    /// How long it has been.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// The deadline, from the beginning on.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit.get()
    }

    /// The time until the deadline.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.limit.get().saturating_sub(self.elapsed())
    }

    /// Waits until a file is readable.
    ///
    /// # Errors
    /// It was not, until the deadline or a signal.
    pub fn wait(&self, file: &impl AsFd) -> Result<(), Interrupted> {
        let limit = self.limit.get();
        if self.poll(file, PollFlags::POLLIN, limit)? { Ok(()) } else { Err(Interrupted::Deadline(limit)) }
    }

    /// Waits for an event of a file, until `end`, counted from the beginning, or the deadline. Returns
    /// whether it came.
    ///
    /// # Errors
    /// A signal.
    pub fn wait_until(
        &self,
        file: &impl AsFd,
        events: PollFlags,
        end: Duration,
    ) -> Result<bool, Interrupted> {
        self.poll(file, events, end.min(self.limit.get()))
    }

    /// Waits until `end`, counted from the beginning, or the deadline.
    ///
    /// # Errors
    /// A signal.
    pub fn pause(&self, end: Duration) -> Result<(), Interrupted> {
        let left = end.min(self.limit.get()).saturating_sub(self.elapsed());
        let Some(signals) = &self.signals else {
            std::thread::sleep(left);
            return Ok(());
        };
        let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(1..) => Err(Interrupted::Signal),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn poll(&self, file: &impl AsFd, events: PollFlags, end: Duration) -> Result<bool, Interrupted> {
        loop {
            let left = end.saturating_sub(self.elapsed());
            // Rounded up: a wait of 0 ms at the end would spin.
            let ms = left.as_millis().saturating_add(u128::from(!left.is_zero()));
            let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
            let mut files = vec![PollFd::new(file.as_fd(), events)];
            files.extend(self.signals.iter().map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
            match poll(&mut files, timeout) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                // Nothing can be waited for: what follows blocks, or fails by itself.
                Err(_) => return Ok(true),
            }
            let mut ready = files.iter().map(|file| file.revents().is_some_and(|events| !events.is_empty()));
            // What is done is done, even if a signal comes at the same time.
            if ready.next() == Some(true) {
                return Ok(true);
            }
            if ready.next() == Some(true) {
                return Err(Interrupted::Signal);
            }
        }
    }

    /// Reads standard input to its end. What was read is returned with an error, too.
    ///
    /// # Errors
    /// `TimedOut`: it did not end in time. `FileTooLarge`: it is larger than any configuration. Others: it
    /// cannot be read.
    pub fn read_input(&self) -> (Vec<u8>, io::Result<()>) {
        let mut bytes = Vec::new();
        let read = self.read_into(&mut bytes);
        (bytes, read)
    }

    fn read_into(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let late =
            |interrupted: Interrupted| io::Error::new(io::ErrorKind::TimedOut, interrupted.to_string());
        let mut input = io::stdin();
        let mut buffer = vec![0; 64 << 10];
        loop {
            self.wait(&input).map_err(late)?;
            match input.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => bytes.extend(buffer.get(..length).unwrap_or_default()),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
            if bytes.len() > LARGEST {
                let problem = format!("larger than {} MiB, expected a network configuration", LARGEST >> 20);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
            }
            // Input without end is always readable. What is there is read on a node that lets this process
            // wait, too.
            if self.remaining().is_zero() {
                return Err(late(Interrupted::Deadline(self.limit.get())));
            }
        }
    }
}
