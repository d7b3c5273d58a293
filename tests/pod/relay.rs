//! A stand-in for Istio's proxy (`pilot-agent` and Envoy), for tests and the quick start: accepts captured
//! connections, reads their original destination (`SO_ORIGINAL_DST`) and forwards them as they are. One line
//! of log for each. Listens where Istio's proxy does, and responds to its readiness probe; no configuration,
//! no mTLS, no policy.
//!
//! `pilot-agent proxy ...` runs it. Other commands (`wait`, `request ... drain`, in the injected hooks)
//! succeed and do nothing.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, getsockopt, listen,
    setsockopt, socket, sockopt,
};

const OUTBOUND: u16 = 15001;
const INBOUND: u16 = 15006;
const READINESS: u16 = 15021;
/// Traffic from these sources was captured already: the rules do not capture it again.
const INBOUND_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
const INBOUND_SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
const READY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// For the request of a readiness probe.
const TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> io::Result<()> {
    if std::env::args().nth(1).is_some_and(|command| command != "proxy") {
        return Ok(());
    }
    // As process 1 of a container, it has no default action for signals. All threads inherit the mask.
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    ends.thread_block()?;
    let mut listeners = vec![
        ("outbound", TcpListener::bind((Ipv4Addr::UNSPECIFIED, OUTBOUND))?),
        ("inbound", TcpListener::bind((Ipv4Addr::UNSPECIFIED, INBOUND))?),
    ];
    for (direction, port) in [("outbound", OUTBOUND), ("inbound", INBOUND)] {
        listeners.extend(listen_v6(port)?.map(|listener| (direction, listener)));
    }
    // Last: it is ready when all of them listen.
    let mut probed = vec![TcpListener::bind((Ipv4Addr::UNSPECIFIED, READINESS))?];
    probed.extend(listen_v6(READINESS)?);
    say("ready");
    let (ended, first) = mpsc::channel();
    for (direction, listener) in listeners {
        let ended = ended.clone();
        thread::spawn(move || ended.send(accept(direction, &listener)));
    }
    for listener in probed {
        let ended = ended.clone();
        thread::spawn(move || ended.send(respond_to_probes(&listener)));
    }
    thread::spawn(move || ended.send(ends.wait().map(drop).map_err(io::Error::from)));
    // A listener that cannot accept ends the program, too: the kubelet starts it again.
    first.recv().map_err(io::Error::other)?
}

/// None where the node has no IPv6.
fn listen_v6(port: u16) -> io::Result<Option<TcpListener>> {
    let made = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let Some(made) = available(made)? else { return Ok(None) };
    setsockopt(&made, sockopt::Ipv6V6Only, &true)?;
    setsockopt(&made, sockopt::ReuseAddr, &true)?;
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let Some(()) = available(bind(made.as_raw_fd(), &SockaddrStorage::from(address)))? else {
        return Ok(None);
    };
    listen(&made, Backlog::MAXCONN)?;
    Ok(Some(TcpListener::from(made)))
}

fn available<T>(result: nix::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => Ok(None),
        other => Ok(Some(other?)),
    }
}

fn accept(direction: &'static str, listener: &TcpListener) -> io::Result<()> {
    for caller in listener.incoming() {
        let caller = caller?;
        thread::spawn(move || {
            if let Err(error) = pass_on(direction, &caller) {
                say(&format!("{direction} failed: {error}"));
            }
        });
    }
    Ok(())
}

fn pass_on(direction: &str, caller: &TcpStream) -> io::Result<()> {
    let own = caller.local_addr()?;
    let destination = if own.is_ipv4() {
        let original = getsockopt(caller, sockopt::OriginalDst)?;
        let address = Ipv4Addr::from(u32::from_be(original.sin_addr.s_addr));
        SocketAddr::from((address, u16::from_be(original.sin_port)))
    } else {
        let original = getsockopt(caller, sockopt::Ip6tOriginalDst)?;
        SocketAddr::from((Ipv6Addr::from(original.sin6_addr.s6_addr), u16::from_be(original.sin6_port)))
    };
    // A connection to the proxy itself would be passed on to the proxy in a loop.
    if destination.port() == own.port() {
        return Err(io::Error::other(format!("{destination} is this proxy")));
    }
    say(&format!("{direction} {destination}"));
    let onward = TcpStream::from(dial(direction == "inbound", destination)?);
    thread::scope(|both| {
        both.spawn(|| copy(caller, &onward));
        copy(&onward, caller);
    });
    Ok(())
}

fn dial(inbound: bool, destination: SocketAddr) -> io::Result<OwnedFd> {
    let (family, source): (_, IpAddr) = if destination.is_ipv4() {
        (AddressFamily::Inet, INBOUND_SOURCE.into())
    } else {
        (AddressFamily::Inet6, INBOUND_SOURCE_V6.into())
    };
    let onward = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if inbound {
        bind(onward.as_raw_fd(), &SockaddrStorage::from(SocketAddr::from((source, 0))))?;
    }
    connect(onward.as_raw_fd(), &SockaddrStorage::from(destination))?;
    Ok(onward)
}

/// Copies until one side closes; a broken connection ends both.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let how = if io::copy(&mut from, &mut to).is_ok() { Shutdown::Write } else { Shutdown::Both };
    // The other side may have closed it before.
    to.shutdown(how).ok();
}

fn respond_to_probes(listener: &TcpListener) -> io::Result<()> {
    for caller in listener.incoming() {
        let mut caller = caller?;
        // Errors are the kubelet's to report: it repeats the probe.
        thread::spawn(move || {
            caller.set_read_timeout(Some(TIMEOUT))?;
            let mut request = [0; 4096];
            caller.read(&mut request).and_then(|_| caller.write_all(READY))
        });
    }
    Ok(())
}

/// The log's reader may be gone; that is no reason to stop.
fn say(line: &str) {
    writeln!(io::stdout(), "{line}").ok();
}
