//! The values of the options that describe a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::cli::ASK_ABOUT_A_POD;
use crate::model::{Interface, Mark, Transport};

use super::error::Expected;
use super::values;

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A process that runs neither as a user nor as a group of the proxy.
    App,
    /// A process of this group.
    Gid(u32),
    /// The kernel itself: a packet that no socket sends.
    Kernel,
    /// A host outside the pod.
    Outside,
    /// A process of this user and this group.
    Process {
        /// The user of the process.
        uid: u32,
        /// The group of the process.
        gid: u32,
    },
    /// The proxy: the first of its users and of its groups.
    Proxy,
    /// A process of this user.
    Uid(u32),
}

/// The conntrack state of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The packet belongs to a connection that is there.
    Established,
    /// The packet fits no connection.
    Invalid,
    /// The packet is the first one of a connection.
    New,
}

impl ConnectionState {
    /// The name in `--ctstate`.
    #[must_use]
    pub const fn conntrack_name(self) -> &'static str {
        match self {
            Self::Established => "ESTABLISHED",
            Self::Invalid => "INVALID",
            Self::New => "NEW",
        }
    }
}

pub(super) fn sender(text: &str) -> Result<Sender, Expected> {
    let number = |id: &str| values::id(id).map_err(|_| senders());
    match text.split_once(':') {
        None => match text {
            "app" => Ok(Sender::App),
            "proxy" => Ok(Sender::Proxy),
            "outside" => Ok(Sender::Outside),
            "kernel" => Ok(Sender::Kernel),
            _ => Err(sender_hint(text)),
        },
        Some(("uid", ids)) => match ids.split_once(",gid:") {
            Some((uid, gid)) => Ok(Sender::Process { uid: number(uid)?, gid: number(gid)? }),
            None => number(ids).map(Sender::Uid),
        },
        Some(("gid", id)) => number(id).map(Sender::Gid),
        Some(_) => Err(sender_hint(text)),
    }
}

/// What is meant by a sender in the words of other programs.
fn sender_hint(text: &str) -> Expected {
    if values::id(text).is_ok() {
        return senders().hint(format!("did you mean uid:{text}?"));
    }
    let is_address = text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok();
    if is_address {
        return senders().hint(format!("the sender's address is an option: --from outside --src {text}"));
    }
    let id = text.split_once([':', '=']).filter(|(_, id)| values::id(id).is_ok());
    match id {
        Some(("user" | "uid" | "UID" | "USER", id)) => senders().hint(format!("did you mean uid:{id}?")),
        Some(("group" | "gid" | "GID" | "GROUP", id)) => senders().hint(format!("did you mean gid:{id}?")),
        _ => senders(),
    }
}

fn senders() -> Expected {
    Expected::new(
        "app, proxy, outside, kernel, uid:N, gid:N or uid:N,gid:N with numbers from 0 to 4294967294",
    )
}

pub(super) fn destination(text: &str) -> Result<SocketAddr, Expected> {
    let expected = || Expected::new("ADDRESS:PORT, such as 10.0.0.1:443 or [2001:db8::1]:443");
    if let Some(hint) = protocol_hint("--to", text) {
        return Err(expected().hint(hint));
    }
    match text.parse::<SocketAddr>() {
        Ok(to) if to.port() != 0 => Ok(SocketAddr::new(as_the_kernel_takes(to.ip()), to.port())),
        Ok(_) => Err(expected().hint("no connection goes to port 0")),
        Err(_) if text.parse::<Ipv6Addr>().is_ok() => {
            Err(expected().hint("add the port, with the address in brackets"))
        }
        Err(_) if is_address(text) => Err(expected().hint("add the port")),
        Err(_) if text.contains("://") => {
            Err(expected()
                .hint("leave the scheme and the path out, and give an address: names are not resolved"))
        }
        Err(_) if text.starts_with("pod/") => Err(expected().hint(ASK_ABOUT_A_POD)),
        Err(_)
            if text.rsplit_once(':').is_some_and(|(address, port)| is_address(address) && is_name(port)) =>
        {
            Err(expected().hint("give the number of the port"))
        }
        Err(_) if text.contains('%') => {
            Err(expected().hint("name the interface with --out or --in, not in the address"))
        }
        Err(_) if text.contains(|c: char| c.is_ascii_alphabetic()) && !text.contains("::") => {
            Err(expected().hint("names are not resolved: give the address"))
        }
        Err(_) if text.contains(['/', '-', ',', '*']) => {
            Err(expected().hint("it is about one connection: give one address and one port"))
        }
        Err(_) => Err(expected()),
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Whether it is one without a port, also in brackets.
fn is_address(text: &str) -> bool {
    text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

/// What is meant by an address with a protocol or a port behind a slash, as other tools write it.
fn protocol_hint(flag: &str, text: &str) -> Option<String> {
    let (address, name) = text.rsplit_once('/').filter(|(address, _)| !address.ends_with('/'))?;
    let is_socket = address.parse::<SocketAddr>().is_ok();
    let is_address = is_address(address);
    let names = [Transport::Tcp, Transport::Udp].map(Transport::name);
    let Some(protocol) = names.into_iter().find(|known| known.eq_ignore_ascii_case(name)) else {
        // No prefix is that long.
        if is_address && name.parse::<u16>().is_ok_and(|port| port > 128) {
            return Some("a colon is before the port".to_owned());
        }
        return (is_name(name) && is_socket)
            .then(|| format!("TCP and UDP alone are ever captured: {flag} {address}"));
    };
    let (port, more) = match (is_socket, is_address) {
        (true, _) => ("", ""),
        (false, true) => (":PORT", ""),
        (false, false) => ("", "; names are not resolved: give the address"),
    };
    Some(format!("the protocol is an option: {flag} {address}{port} --proto {protocol}{more}"))
}

/// An IPv4 address in IPv6 form is one of IPv4, and the unspecified one is the machine itself.
fn as_the_kernel_takes(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if !address.is_unspecified() {
        return address;
    }
    if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

pub(super) fn source(text: &str) -> Result<(IpAddr, Option<u16>), Expected> {
    let with_port = |socket: SocketAddr| (socket.ip(), Some(socket.port()));
    let alone = || text.parse().map(|address| (address, None));
    let expected = "ADDRESS or ADDRESS:PORT, such as 10.0.0.1, 10.0.0.1:40000 or [2001:db8::1]:40000";
    text.parse().map(with_port).or_else(|_| alone()).map_err(|_| {
        let expected = Expected::new(expected);
        match protocol_hint("--src", text) {
            Some(hint) => expected.hint(hint),
            None => expected,
        }
    })
}

pub(super) fn transport(text: &str) -> Result<Transport, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(Transport::Tcp),
        "udp" => Ok(Transport::Udp),
        _ => Err(Expected::new("tcp or udp: nothing else is ever captured")),
    }
}

pub(super) fn interface(text: &str) -> Result<String, Expected> {
    let name: Interface = values::interface(text)?;
    match name.as_str() {
        pattern if pattern.ends_with('+') => Err(Expected::new("the name of one interface, without `+`")),
        name => Ok(name.to_owned()),
    }
}

pub(super) fn mark(text: &str) -> Result<Mark, Expected> {
    values::number(text)
        .map(Mark)
        .ok_or_else(|| Expected::new("a number from 0 to 4294967295, decimal or 0x…"))
}

pub(super) fn state(text: &str) -> Result<ConnectionState, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "new" => Ok(ConnectionState::New),
        "established" => Ok(ConnectionState::Established),
        "invalid" => Ok(ConnectionState::Invalid),
        _ => Err(Expected::new("new, established or invalid")),
    }
}
