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
    fn with<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Option<T> {
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

    /// Does `work` where a sandbox has no ids of the file system: by the effective ones, in a thread that
    /// ends with its ids.
    fn with_effective_ids<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Option<T> {
        if Uid::effective().as_raw() == self.uid {
            return Some(work());
        }
        let changed = || {
            // The wrapper of libc would change all threads.
            set_of_thread(libc::SYS_setresgid, self.gid);
            set_of_thread(libc::SYS_setresuid, self.uid).then(work)
        };
        std::thread::scope(|scope| scope.spawn(changed).join()).ok().flatten()
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

/// A socket that is on its way from the loopback address to 127.0.0.6 or `::6`.
pub(super) fn connect(family: Family, port: Port, owner: &Owner) -> Result<OwnedFd, Errno> {
    let probe = owner.with(|| stream(family)).ok_or(Errno::EPERM)??;
    bind(probe.as_raw_fd(), &local(family, 0))?;
    let target: SocketAddr = match family {
        Family::V4 => (Ipv4Addr::new(127, 0, 0, 6), port.number()).into(),
        Family::V6 => (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6), port.number()).into(),
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
