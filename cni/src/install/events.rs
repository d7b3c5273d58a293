//! Events of the agent: signals, and changes in the node's directories.

use std::cell::Cell;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::error::InstallError;
use super::files;
use super::locked_dir::is_temporary;
use super::options::{Install, InstallMode};

/// The interval of a full reconciliation without an event: events can be lost.
pub(super) const RESYNC: Duration = Duration::from_secs(30);
/// The interval of a full reconciliation where changes cause no events.
const POLL: Duration = Duration::from_secs(5);

/// The average time between failed attempts, beyond a burst: an attempt may cause events itself, and another
/// program may cause many.
const INTERVAL: Duration = Duration::from_secs(1);
/// Failed attempts that may follow each other without delay: a program that replaces a file causes several
/// events.
const BURST: u32 = 30;

/// Signals and, where the node has inotify instances left, changes.
pub(super) struct Events {
    signals: SignalFd,
    inotify: Option<Inotify>,
    /// When the failed attempts so far would have ended, one per [`INTERVAL`] (generic cell rate algorithm).
    paced_until: Cell<Instant>,
}

impl Events {
    /// Blocks SIGTERM and SIGINT in this thread, and those that it starts.
    ///
    /// # Errors
    /// Signals cannot be blocked or read.
    pub(super) fn new() -> Result<Self, InstallError> {
        let failed = |what: &str, error: Errno| InstallError::new(format!("{what}: {error}"));
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGTERM);
        ends.add(Signal::SIGINT);
        ends.thread_block().map_err(|error| failed("cannot block signals", error))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&ends, flags).map_err(|error| failed("signalfd", error))?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).inspect_err(|error| {
            let poll_s = POLL.as_secs();
            log::warn!(poll_s; "changes by other programs are noticed later: inotify: {error}; raise fs.inotify.max_user_instances");
        });
        Ok(Self { signals, inotify: inotify.ok(), paced_until: Cell::new(Instant::now()) })
    }

    /// Discards changes so far.
    pub(super) fn discard(&self) {
        self.changed();
    }

    /// Reads changes so far. Returns whether another program has made one.
    fn changed(&self) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let mut changed = false;
        while let Ok(events) = inotify.read_events()
            && !events.is_empty()
        {
            changed |= !events.iter().all(is_own);
        }
        changed
    }

    /// Watches the directories. Returns how long to wait for the next event at most.
    pub(super) fn watch(&self, options: &Install) -> Duration {
        let is_watched = self.inotify.as_ref().is_some_and(|inotify| watch(inotify, options));
        if is_watched { RESYNC } else { POLL }
    }

    /// Waits for a change or a signal, or this long. Returns whether the agent shall end.
    ///
    /// # Errors
    /// Events cannot be waited for.
    pub(super) fn wait(&self, wait: Duration) -> Result<bool, InstallError> {
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let ended = self.poll(self.inotify.as_ref(), left)?;
            if ended || self.changed() || Instant::now() >= end {
                return Ok(ended);
            }
        }
    }

    /// [`Events::wait`] after a failed attempt, rate-limited beyond a burst of [`BURST`].
    ///
    /// # Errors
    /// As of [`Events::wait`].
    pub(super) fn wait_after_failure(&self, wait: Duration) -> Result<bool, InstallError> {
        let now = Instant::now();
        let paced = self.paced_until.get().max(now) + INTERVAL;
        self.paced_until.set(paced);
        let pause = paced.saturating_duration_since(now + BURST * INTERVAL);
        Ok(!pause.is_zero() && self.poll(None, pause)? || self.wait(wait.saturating_sub(pause))?)
    }

    fn poll(&self, inotify: Option<&Inotify>, wait: Duration) -> Result<bool, InstallError> {
        let timeout = PollTimeout::try_from(wait.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(inotify.map(|inotify| PollFd::new(inotify.as_fd(), PollFlags::POLLIN)));
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(InstallError::new(format!("poll: {error}"))),
        }
        Ok(polled.first().and_then(PollFd::any).unwrap_or(false))
    }
}

/// Whether a change concerns our own temporary file: a failed attempt does not trigger the next one.
fn is_own(event: &InotifyEvent) -> bool {
    event.name.as_ref().is_some_and(|name| is_temporary(name))
}

/// A directory that appears later is watched from then on; watching one twice is watching it once. Returns
/// whether all are.
fn watch(inotify: &Inotify, options: &Install) -> bool {
    let flags = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ATTRIB;
    let dirs = &options.dirs;
    let mut watched = vec![dirs.net.clone(), dirs.bin.clone()];
    if options.mode == InstallMode::DropIn {
        let networks = files::directories(&dirs.net).unwrap_or_default();
        watched.extend(networks.iter().map(|name| dirs.net.join(name)));
    }
    let mut all = true;
    for dir in watched {
        if let Err(error) = inotify.add_watch(&dir, flags) {
            log::debug!(directory = path_shown(&dir); "not watched, polled every {} s: {error}", POLL.as_secs());
            all = false;
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::panic, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::install::options::{self, Command};

    fn options(dir: &std::path::Path) -> Install {
        let args = ["net-dir", "bin-dir", "run-dir"].map(|name| format!("--{name}={}", dir.display()));
        let Command::Install(install) = options::install(&args).unwrap().0 else { panic!("another command") };
        *install
    }

    #[test]
    fn attempt_after_a_change_is_not_delayed_and_own_temporary_files_are_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::new().unwrap();
        events.watch(&options(dir.path()));
        let begin = Instant::now();
        for number in 0..BURST {
            std::fs::write(dir.path().join(".istio-cni.10-a.conflist.tmp"), "x").unwrap();
            assert!(!events.changed());
            std::fs::write(dir.path().join("10-a.conflist"), number.to_string()).unwrap();
            assert!(!events.wait_after_failure(Duration::from_secs(600)).unwrap());
        }
        assert!(begin.elapsed() < BURST * INTERVAL / 2, "{:?}", begin.elapsed());
        // Attempts that cause changes themselves do not loop without delay.
        let begin = Instant::now();
        let mut attempts = 0;
        while begin.elapsed() < INTERVAL * 3 {
            std::fs::write(dir.path().join("10-a.conflist"), "x").unwrap();
            assert!(!events.wait_after_failure(Duration::from_secs(600)).unwrap());
            attempts += 1;
        }
        assert!(attempts < BURST + 20, "{attempts}");
    }
}
