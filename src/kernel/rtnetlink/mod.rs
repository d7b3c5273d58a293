//! Addresses, routes and policy rules.
//!
//! What we add carries [`ROUTE_PROTOCOL`], so that cleanup takes out exactly that.

mod address;
mod fib;
mod filters;
mod link;
mod links;
pub mod loopback;
mod route;
mod rule;

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::netlink::{Message, Protocol, Socket};
use super::recording;
use crate::model::{Family, InterfaceAddress, Network, ROUTE_PROTOCOL, RULE_PRIORITY};

pub use address::{PassthroughAddress, ipv6_usable};
pub use route::{LocalDefault, Route};
pub use rule::MarkRule;

/// Index of `lo`: the first link of every network namespace.
const LOOPBACK: u32 = 1;

/// Whether something was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The object was not there.
    New,
    /// The object was there, as we would have made it.
    AlreadyThere,
}

/// A socket for addresses, routes and rules, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Rtnetlink {
    socket: Socket,
    /// The names of links, by number, as far as they were asked for.
    names: BTreeMap<u32, String>,
}

impl Rtnetlink {
    /// Opens a socket in the current thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::open(Protocol::Route)?, names: BTreeMap::new() })
    }

    /// Sends what adds something; that it is there already is not an error.
    fn add(&mut self, message: &Message) -> io::Result<Added> {
        match self.socket.request(message) {
            Ok(()) => Ok(Added::New),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(Added::AlreadyThere),
            Err(error) => Err(error),
        }
    }

    /// Sends what deletes something; false if it was not there.
    fn delete(&mut self, message: &Message, absent: &[i32]) -> io::Result<bool> {
        match self.socket.request(message) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error().is_some_and(|errno| absent.contains(&errno)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The state of this thread's network namespace.
///
/// # Errors
/// The kernel refuses, or `/proc` cannot be read.
pub fn network() -> io::Result<Network> {
    let addresses = Rtnetlink::open()?.addresses()?;
    let ipv6 = ipv6_usable(&addresses)?;
    Ok(Network { addresses, ipv6 })
}

/// How long duplicate address detection is waited for: by default it takes the kernel up to two seconds.
const DETECTION: Duration = Duration::from_secs(3);
const DETECTION_PAUSE: Duration = Duration::from_millis(20);

/// Waits until duplicate address detection has ended in this thread's network namespace. An address for which
/// it takes longer.
///
/// # Errors
/// The kernel refuses.
pub fn await_addresses() -> io::Result<Option<InterfaceAddress>> {
    if !recording::is_off() {
        return Ok(None);
    }
    let begin = Instant::now();
    loop {
        let first = Rtnetlink::open()?.detected_addresses()?.into_iter().next();
        if first.is_none() || begin.elapsed() > DETECTION {
            return Ok(first);
        }
        thread::sleep(DETECTION_PAUSE);
    }
}

/// The number of an address family, in the byte in which rtnetlink keeps it.
fn af(family: Family) -> u8 {
    let number = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    u8::try_from(number).unwrap_or(0)
}

/// A flag of libc's in the 16 bits of a message's header.
fn flags(bits: libc::c_int) -> u16 {
    u16::try_from(bits).unwrap_or(0)
}

#[cfg(test)]
mod tests;
