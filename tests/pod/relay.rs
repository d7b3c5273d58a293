//! A stand-in for Envoy: accepts captured connections, reads their original destination (`SO_ORIGINAL_DST`) and forwards them.
//! One line of log for each. Listens where Istio's proxy does; IPv4 only.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::thread;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, getsockopt, socket, sockopt,
};

const OUTBOUND: u16 = 15001;
const INBOUND: u16 = 15006;
/// Traffic from this source was captured already: the rules do not capture it again.
const INBOUND_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);

fn main() -> io::Result<()> {
    let outbound = thread::spawn(|| listen("outbound", OUTBOUND, Ipv4Addr::UNSPECIFIED));
    listen("inbound", INBOUND, INBOUND_SOURCE)?;
    outbound.join().map_err(|_| io::Error::other("the outbound listener is gone"))?
}

fn listen(direction: &'static str, port: u16, source: Ipv4Addr) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    say(&format!("{direction} ready"));
    for caller in listener.incoming() {
        let caller = caller?;
        thread::spawn(move || {
            if let Err(error) = pass_on(direction, port, source, &caller) {
                say(&format!("{direction} failed: {error}"));
            }
        });
    }
    Ok(())
}

fn pass_on(direction: &str, port: u16, source: Ipv4Addr, caller: &TcpStream) -> io::Result<()> {
    let original = getsockopt(caller, sockopt::OriginalDst)?;
    let address = Ipv4Addr::from(u32::from_be(original.sin_addr.s_addr));
    let destination = SocketAddrV4::new(address, u16::from_be(original.sin_port));
    // A connection to the proxy itself would be passed on to the proxy in a loop.
    if destination.port() == port {
        return Err(io::Error::other(format!("{destination} is this proxy")));
    }
    say(&format!("{direction} {destination}"));
    let onward = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(onward.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(source, 0)))?;
    connect(onward.as_raw_fd(), &SockaddrIn::from(destination))?;
    let onward = TcpStream::from(onward);
    thread::scope(|both| {
        both.spawn(|| copy(caller, &onward));
        copy(&onward, caller);
    });
    Ok(())
}

/// Copies until one side closes; a broken connection ends both.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let how = if io::copy(&mut from, &mut to).is_ok() { Shutdown::Write } else { Shutdown::Both };
    // The other side may have closed it before.
    to.shutdown(how).ok();
}

/// The log's reader may be gone; that is no reason to stop.
fn say(line: &str) {
    writeln!(io::stdout(), "{line}").ok();
}
