//! The few system calls that neither std nor nix offers safely: a user per thread, transparent and bound
//! sockets.
#![allow(unsafe_code, reason = "credentials of one thread, and socket options, are raw system calls")]

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;

/// Gives the calling thread, and no other, this user and group, and no further group.
///
/// The C library's functions change every thread of the process; the bare system calls change one.
pub fn become_user(uid: u32, gid: u32) {
    // SAFETY: plain integers and an empty list; no memory is handed over.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<libc::gid_t>()),
            libc::syscall(libc::SYS_setresgid, gid, gid, gid),
            libc::syscall(libc::SYS_setresuid, uid, uid, uid),
            // A change of user makes /proc/<pid>/fd unreadable for our own children; they need it to find
            // namespaces.
            libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1usize, 0usize, 0usize, 0usize),
        ]
    };
    assert_eq!(results, [0; 4], "this thread cannot become user {uid}: {}", io::Error::last_os_error());
}

/// Lets a listening socket take connections for addresses that are not the host's (TPROXY).
pub fn allow_transparent(listener: &impl AsFd) {
    setsockopt(&listener.as_fd(), sockopt::IpTransparent, &true).expect("IP_TRANSPARENT needs root");
}

/// Binds a socket to a network interface: packets that arrive on others are not for it.
pub fn bind_to_interface(socket: &impl AsFd, name: &str) {
    setsockopt(&socket.as_fd(), sockopt::BindToDevice, &name.into()).expect("SO_BINDTODEVICE");
}

/// A listening socket. One on an IPv6 address takes no IPv4 connections, so that both families can have the
/// same port.
///
/// # Errors
/// The address or port is in use, or not this user's.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let fd = socket(family_of(address.ip()), SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    nix::sys::socket::listen(&fd, Backlog::new(128)?)?;
    Ok(TcpListener::from(fd))
}

/// Lets no more than two connections wait for the listener.
///
/// # Panics
/// The kernel refuses it.
pub fn shorten_queue(listener: &TcpListener) {
    let one = Backlog::new(1).expect("a length");
    nix::sys::socket::listen(listener, one).expect("a shorter queue");
}

/// A listening socket that takes connections of MPTCP, and of TCP.
///
/// # Errors
/// The kernel has no MPTCP, or the address or port is in use.
pub fn listen_mptcp(address: SocketAddr) -> io::Result<TcpListener> {
    let fd = mptcp(address.ip())?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    nix::sys::socket::listen(&fd, Backlog::new(128)?)?;
    Ok(TcpListener::from(fd))
}

/// An MPTCP connection.
///
/// # Errors
/// The kernel has no MPTCP, or the connection fails.
pub fn connect_mptcp(to: SocketAddr) -> io::Result<TcpStream> {
    let fd = mptcp(to.ip())?;
    connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(fd))
}

fn mptcp(address: IpAddr) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers; no other value owns the descriptor.
    let fd = unsafe { libc::socket(family_of(address) as libc::c_int, kind, libc::IPPROTO_MPTCP) };
    // SAFETY: the kernel has just returned it.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

/// Whether the kernel has IPv6 at all: not with `ipv6.disable=1` on its command line.
#[must_use]
pub fn kernel_has_ipv6() -> bool {
    let made = socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
    !matches!(made, Err(Errno::EAFNOSUPPORT))
}

/// Where the caller of an accepted connection wanted to go.
pub fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    use nix::sys::socket::getsockopt;
    let found = if stream.local_addr()?.is_ipv4() {
        getsockopt(stream, sockopt::OriginalDst).map(|raw| {
            let ip = u32::from_be(raw.sin_addr.s_addr).into();
            SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)))
        })
    } else {
        getsockopt(stream, sockopt::Ip6tOriginalDst).map(|raw| {
            let ip = raw.sin6_addr.s6_addr.into();
            SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, 0))
        })
    };
    // Without connection tracking, or under TPROXY, the socket's own address is the original destination.
    found.or_else(|_| stream.local_addr())
}

/// Resets a connection at once. To close its socket would not: a program that another thread starts keeps the
/// sockets of the process open until it has been loaded.
pub fn reset(stream: &TcpStream) {
    let family = libc::sa_family_t::try_from(libc::AF_UNSPEC).expect("a small number");
    let none = libc::sockaddr { sa_family: family, sa_data: [0; 14] };
    let length = libc::socklen_t::try_from(size_of_val(&none)).expect("a small number");
    // SAFETY: the kernel reads the address during the call only.
    let done = unsafe { libc::connect(stream.as_raw_fd(), &raw const none, length) };
    assert_eq!(done, 0, "disconnect: {}", io::Error::last_os_error());
}

/// How a client's socket is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Binding {
    /// Local address; port 0 for any.
    pub source: Option<SocketAddr>,
    /// `SO_MARK`, with `IP_TRANSPARENT` so that the source may be any address. Needs root.
    pub spoofed_mark: Option<u32>,
}

/// A stream socket of `to`'s family, bound as requested, connected within `limit`.
pub fn connect_tcp(to: SocketAddr, binding: Binding, limit: Duration) -> io::Result<TcpStream> {
    let fd = bound(to, binding, SockType::Stream)?;
    let limit_ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    setsockopt(&fd, sockopt::SendTimeout, &TimeVal::milliseconds(limit_ms))?;
    setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::milliseconds(limit_ms))?;
    connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(fd))
}

/// A stream socket that has sent its first packet and waits for the reply.
pub fn start_connect(to: SocketAddr, binding: Binding) -> io::Result<TcpStream> {
    let fd = TcpStream::from(bound(to, binding, SockType::Stream)?);
    fd.set_nonblocking(true)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
        Err(error) => Err(error.into()),
    }
}

/// Whether a socket from [`start_connect`] has been accepted or refused.
pub fn is_ready(fd: &TcpStream) -> bool {
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    poll(&mut polled, PollTimeout::ZERO).expect("poll a socket") > 0
}

/// A socket of `to`'s family, bound as requested.
pub fn bound(to: SocketAddr, binding: Binding, kind: SockType) -> io::Result<OwnedFd> {
    let fd = socket(family_of(to.ip()), kind, SockFlag::SOCK_CLOEXEC, None)?;
    if let Some(mark) = binding.spoofed_mark {
        allow_transparent(&fd);
        setsockopt(&fd, sockopt::Mark, &mark)?;
    }
    if let Some(source) = binding.source {
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(source))?;
    }
    Ok(fd)
}

/// Keeps the calling thread on the processor that it is on.
pub fn pin_to_current_cpu() -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(sched_getcpu()?)?;
    sched_setaffinity(Pid::from_raw(0), &only)?;
    Ok(())
}

/// A raw socket for hand-made TCP segments between this host and `peer`.
pub fn raw_tcp(peer: IpAddr) -> io::Result<OwnedFd> {
    let fd = socket(family_of(peer), SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp)?;
    Ok(fd)
}

fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
