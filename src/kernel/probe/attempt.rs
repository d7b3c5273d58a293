//! The sockets of a probe.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect as connect_to, getsockopt,
    listen as listen_on, setsockopt, socket, sockopt,
};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::model::{Family, Port};

/// The user and group that send a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Owner {
    /// Whether a socket can be made under this uid. The gid may fail: the rules by uid come first and decide.
    pub(super) fn possible(&self) -> bool {
        self.with(|| ()).is_some()
    }

    /// Does `work` under these ids; `None`, and nothing done, if the uid cannot be had.
    ///
    /// The owner match looks at the file system ids that made a socket. They are the thread's own, which
    /// does not affect other threads, and changing them back is always allowed.
    fn with<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let group = setfsgid(Gid::from_raw(self.gid));
        let user = setfsuid(Uid::from_raw(self.uid));
        // The call returns the previous id and not whether it succeeded: an impossible id reads the current
        // one.
        let reached = setfsuid(Uid::from_raw(u32::MAX)).as_raw() == self.uid;
        if !reached {
            setfsgid(group);
            return self.with_effective_ids(work);
        }
        let result = work();
        setfsuid(user);
        setfsgid(group);
        Some(result)
    }

    /// Does `work` where a sandbox has no ids of the file system: by the effective ones. The real and saved
    /// ids stay, which allows to change back.
    fn with_effective_ids<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let (user, group) = (Uid::effective().as_raw(), Gid::effective().as_raw());
        if user == self.uid {
            return Some(work());
        }
        set_of_thread(libc::SYS_setresgid, self.gid);
        let result = set_of_thread(libc::SYS_setresuid, self.uid).then(work);
        // The user first: with its effective capabilities.
        set_of_thread(libc::SYS_setresuid, user);
        set_of_thread(libc::SYS_setresgid, group);
        result
    }
}

/// Gives this thread an effective id. Whether the kernel did.
#[allow(unsafe_code, reason = "no safe wrapper changes the ids of one thread")]
fn set_of_thread(call: libc::c_long, id: u32) -> bool {
    // As in libc: an id that stays is -1.
    const KEEP: libc::c_int = -1;
    // No process can have this id: it would mean to keep the present one.
    if id == u32::MAX {
        return false;
    }
    // SAFETY: the system call takes three numbers.
    unsafe { libc::syscall(call, KEEP, id, KEEP) == 0 }
}

/// A socket that listens on `port` of the loopback address.
pub(super) fn listen(family: Family, port: Port) -> Result<TcpListener, Errno> {
    let listener = stream(family)?;
    setsockopt(&listener, sockopt::ReuseAddr, &true)?;
    if family == Family::V6 {
        setsockopt(&listener, sockopt::Ipv6V6Only, &true)?;
    }
    bind(listener.as_raw_fd(), &local(family, port.number()))?;
    listen_on(&listener, Backlog::new(16)?)?;
    Ok(listener.into())
}

/// A socket that is on its way from the loopback address to 127.0.0.6 or `::6`. In gVisor the packet has the
/// ids that the process has when it sends it.
pub(super) fn connect(family: Family, port: Port, owner: &Owner) -> Result<OwnedFd, Errno> {
    owner.with(|| start(family, port.number())).ok_or(Errno::EPERM)?
}

fn start(family: Family, port: u16) -> Result<OwnedFd, Errno> {
    let probe = stream(family)?;
    bind(probe.as_raw_fd(), &local(family, 0))?;
    let target: SocketAddr = match family {
        Family::V4 => (Ipv4Addr::new(127, 0, 0, 6), port).into(),
        Family::V6 => (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6), port).into(),
    };
    match connect_to(probe.as_raw_fd(), &SockaddrStorage::from(target)) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(probe),
        Err(errno) => Err(errno),
    }
}

/// The outcome of a connection; `None` while it is pending.
pub(super) fn connected(probe: &OwnedFd) -> Option<Result<(), Errno>> {
    let mut descriptors = [PollFd::new(probe.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut descriptors, PollTimeout::ZERO) != Ok(1) {
        return None;
    }
    Some(match getsockopt(probe, sockopt::SocketError) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Errno::from_raw(code)),
        Err(errno) => Err(errno),
    })
}

/// Accepts a connection, if one waits, and returns the port to which it was going before it was redirected,
/// if it was.
pub(super) fn accept(family: Family, listener: &TcpListener) -> Option<Option<u16>> {
    let (connection, _) = listener.accept().ok()?;
    let port = match family {
        Family::V4 => getsockopt(&connection, sockopt::OriginalDst).map(|address| address.sin_port),
        Family::V6 => getsockopt(&connection, sockopt::Ip6tOriginalDst).map(|address| address.sin6_port),
    };
    Some(port.ok().map(u16::from_be))
}

fn stream(family: Family) -> Result<OwnedFd, Errno> {
    let family = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

fn local(family: Family, port: u16) -> SockaddrStorage {
    match family {
        Family::V4 => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        Family::V6 => SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use nix::unistd::{Gid, Uid};

    use super::Owner;

    /// The ids are the thread's own: the test needs root, and no other test sees them.
    #[test]
    fn effective_ids_are_changed_for_the_work_only() {
        let ids = || (Uid::effective().as_raw(), Gid::effective().as_raw());
        let before = ids();

        let during = Owner { uid: 1337, gid: 1338 }.with_effective_ids(ids);

        assert_eq!(during, Some((1337, 1338)));
        assert_eq!(ids(), before);
    }

    #[test]
    fn uid_that_cannot_be_had_leaves_the_ids() {
        let ids = || (Uid::effective().as_raw(), Gid::effective().as_raw());
        let before = ids();

        let during = Owner { uid: u32::MAX, gid: 1338 }.with_effective_ids(ids);

        assert_eq!(during, None);
        assert_eq!(ids(), before);
    }
}
