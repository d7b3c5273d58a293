//! What the agent waits for: signals, and changes of the node's directories.

use std::os::fd::AsFd as _;
use std::time::Duration;

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::error::InstallError;
use super::files;
use super::options::{Install, Placement};

/// How long without an event until everything is looked at again: an event may be lost.
pub(super) const RESYNC: Duration = Duration::from_secs(30);
/// The same where changes cause no events.
const POLL: Duration = Duration::from_secs(5);

/// Signals and, where the node has inotify instances left, changes.
pub(super) struct Events {
    signals: SignalFd,
    inotify: Option<Inotify>,
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
        Ok(Self { signals, inotify: inotify.ok() })
    }

    /// Discards changes so far.
    pub(super) fn discard(&self) {
        let Some(inotify) = &self.inotify else { return };
        while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
    }

    /// Watches the directories. Returns how long to wait for the next event at most.
    pub(super) fn watch(&self, options: &Install) -> Duration {
        let is_watched = self.inotify.as_ref().is_some_and(|inotify| watch(inotify, options));
        if is_watched { RESYNC } else { POLL }
    }

    /// Waits for an event, or this long. Returns whether the agent shall end.
    ///
    /// # Errors
    /// Events cannot be waited for.
    pub(super) fn wait(&self, wait: Duration) -> Result<bool, InstallError> {
        self.poll(self.inotify.as_ref(), wait)
    }

    /// [`Events::wait`], whatever changes.
    ///
    /// # Errors
    /// As of [`Events::wait`].
    pub(super) fn pause(&self, wait: Duration) -> Result<bool, InstallError> {
        self.poll(None, wait)
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

/// A directory that appears later is watched from then on; watching one twice is watching it once. Returns whether all are.
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
    if options.placement == Placement::DropIn {
        let networks = files::directories(&dirs.net).unwrap_or_default();
        watched.extend(networks.iter().map(|name| dirs.net.join(name)));
    }
    let mut all = true;
    for dir in watched {
        if let Err(error) = inotify.add_watch(&dir, flags) {
            log::debug!(directory = path_shown(&dir); "not watched, looked at every {} s: {error}", POLL.as_secs());
            all = false;
        }
    }
    all
}
