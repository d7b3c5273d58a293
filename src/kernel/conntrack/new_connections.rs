//! New connections as they begin, from the notices of connection tracking.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::{ConntrackError, Entry, Kind};
use crate::kernel::netlink::{Group, Notices};
use crate::kernel::procfs;

/// Whether entries are announced: 0 for never.
const EVENTS: &str = "/proc/sys/net/netfilter/nf_conntrack_events";

/// The notices of new entries in a network namespace.
#[derive(Debug)]
pub struct NewConnections {
    notices: Notices,
    /// How many were lost before those that are reported next.
    lost_before: u32,
}

/// The connections that began, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// TCP and UDP.
    pub entries: Vec<Entry>,
    /// How many notices were lost, if any were; the inner `None` if the kernel does not count them.
    pub lost: Option<Option<u32>>,
}

impl NewConnections {
    /// Listens in the network namespace of this thread. This loads the module `nf_conntrack_netlink` where it
    /// is missing and may be loaded.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn open() -> Result<Self, ConntrackError> {
        // Opening the table says whether the kernel has ctnetlink: a group exists without it.
        super::Conntrack::open()?;
        let notices = Notices::open(Group::NewConnections)?;
        Ok(Self { notices, lost_before: 0 })
    }

    /// Whether this namespace is set never to announce entries.
    #[must_use]
    pub fn are_disabled() -> bool {
        procfs::read(EVENTS).is_ok_and(|text| text.trim() == "0")
    }

    /// What began since the last time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&mut self) -> io::Result<Taken> {
        let mut entries = Vec::new();
        let is_complete = self.notices.take(|reply, _| {
            let entry = (reply.kind == Kind::New.number()).then(|| Entry::read(reply)).flatten();
            entries.extend(entry.filter(Entry::is_of_first_packet));
        })?;
        if is_complete {
            return Ok(Taken { entries, lost: None });
        }
        let total = self.notices.lost();
        let lost = total.map(|total| total.saturating_sub(self.lost_before));
        self.lost_before = total.unwrap_or_default();
        Ok(Taken { entries, lost: Some(lost) })
    }
}

impl AsFd for NewConnections {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}
