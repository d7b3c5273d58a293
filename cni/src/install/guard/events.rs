//! What guard and repair wait for: notices of changed rules, and files that are written or removed.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// How long nothing is waited for without changes of state files.
const POLL: Duration = Duration::from_secs(5);

/// Changes of the directory of state files, where the node has inotify instances left.
#[derive(Debug)]
pub(in crate::install) struct StateEvents(Option<Inotify>);

impl StateEvents {
    pub(in crate::install) fn new() -> Self {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let inotify = inotify.inspect_err(|error| {
            let poll_s = POLL.as_secs();
            log::warn!(poll_s; "new pods are guarded later: inotify: {error}; raise fs.inotify.max_user_instances");
        });
        Self(inotify.ok())
    }

    /// Watches the directory, which may be another one than before. Returns how long to wait until it is read
    /// again at most.
    pub(in crate::install) fn watch(&self, dir: &Path, longest: Duration) -> Duration {
        let flags = AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_DELETE_SELF;
        let watched = self.0.as_ref().map(|inotify| inotify.add_watch(dir, flags));
        if let Some(Err(error)) = &watched {
            log::debug!(directory = path_shown(dir); "not watched: {error}");
        }
        if matches!(watched, Some(Ok(_))) { longest } else { POLL }
    }

    /// Watches the directory of network namespaces for those that end. Without this, audits find out.
    pub(in crate::install) fn watch_removals(&self, dir: &Path) {
        let Some(inotify) = &self.0 else { return };
        if let Err(error) = inotify.add_watch(dir, AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM) {
            log::debug!(directory = path_shown(dir); "not watched: {error}");
        }
    }

    /// Whether there was a change since the last call.
    pub(in crate::install) fn changed(&self) -> bool {
        let Some(inotify) = &self.0 else { return false };
        let mut changed = false;
        while let Ok(events) = inotify.read_events()
            && !events.is_empty()
        {
            changed = true;
        }
        changed
    }

    /// Waits for a change, for `other`, or until then.
    pub(in crate::install) fn wait(&self, other: Option<BorrowedFd<'_>>, until: Instant) -> nix::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that the time is over afterwards.
        let left = left.checked_add(Duration::from_micros(999)).unwrap_or(left);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let own = self.0.as_ref().map(|inotify| inotify.as_fd());
        let mut all: Vec<_> =
            own.into_iter().chain(other).map(|one| PollFd::new(one, PollFlags::POLLIN)).collect();
        match poll(&mut all, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
