//! Links, addresses and routes over rtnetlink. A process of `ip` for each would take a millisecond or two,
//! and tests make many thousands of them.

use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, Ordering};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::net::if_::if_nametoindex;

use crate::Namespace;

/// Changes links, addresses and routes of one network namespace. Every error of the kernel is a panic.
pub struct Links {
    socket: Socket,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").finish_non_exhaustive()
    }
}

impl Links {
    /// The links of the namespace in which the calling thread is. To be used on that thread: names of links
    /// are looked up where it is.
    #[must_use]
    pub fn here() -> Self {
        let socket = Socket::new(NETLINK_ROUTE).expect("open a socket of rtnetlink");
        socket.connect(&SocketAddr::new(0, 0)).expect("connect it with the kernel");
        Self { socket }
    }

    /// Sets a link up.
    pub fn up(&self, link: &str) {
        self.set(link, |message| {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        });
    }

    /// Makes a link a port of a bridge.
    pub fn set_bridge(&self, link: &str, bridge: &str) {
        self.set(link, |message| message.attributes.push(LinkAttribute::Controller(index(bridge))));
    }

    /// Adds a bridge.
    pub fn add_bridge(&self, name: &str) {
        let info = vec![LinkInfo::Kind(InfoKind::Bridge)];
        self.add_link(name, 0, LinkAttribute::LinkInfo(info));
    }

    /// Adds a link whose other end is `peer` in the namespace `other`.
    ///
    /// The indices of both ends differ. Where they are equal, as those of the first links of two namespaces
    /// are, the kernel does not know that the link has another end: it handles its carrier with that of all
    /// other links once a second, and packets to its addresses are lost until then
    /// (`linkwatch_urgent_event`).
    pub fn add_veth(&self, name: &str, other: &Namespace, peer: &str) {
        /// Above those that the kernel gives by itself.
        static NEXT: AtomicU32 = AtomicU32::new(1000);
        let index = NEXT.fetch_add(2, Ordering::Relaxed);
        let mut end = LinkMessage::default();
        end.header.index = index + 1;
        end.attributes =
            vec![LinkAttribute::IfName(peer.to_owned()), LinkAttribute::NetNsFd(other.file().as_raw_fd())];
        let data = InfoData::Veth(InfoVeth::Peer(end));
        let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(data)];
        self.add_link(name, index, LinkAttribute::LinkInfo(info));
    }

    /// Gives an address to a link. An IPv6 address is usable at once, without duplicate address detection.
    pub fn add_address(&self, address: IpAddr, prefix: u8, link: &str) {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = index(link);
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.add(RouteNetlinkMessage::NewAddress(message), &format!("address {address}/{prefix} of {link}"));
    }

    /// Adds a route over a gateway on a link, to a prefix or to everything.
    pub fn add_route(&self, to: Option<(IpAddr, u8)>, gateway: IpAddr, link: &str) {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(gateway),
            destination_prefix_length: to.map_or(0, |(_, prefix)| prefix),
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Boot,
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            // The link may have no address yet by which the gateway is reached.
            flags: RouteFlags::Onlink,
            ..RouteHeader::default()
        };
        message.attributes = vec![RouteAttribute::Gateway(gateway.into()), RouteAttribute::Oif(index(link))];
        message.attributes.extend(to.map(|(address, _)| RouteAttribute::Destination(address.into())));
        self.add(RouteNetlinkMessage::NewRoute(message), &format!("route to {to:?} via {gateway} on {link}"));
    }

    fn set(&self, link: &str, change: impl FnOnce(&mut LinkMessage)) {
        let mut message = LinkMessage::default();
        message.header.index = index(link);
        change(&mut message);
        self.request(RouteNetlinkMessage::SetLink(message), 0, &format!("set link {link}"));
    }

    fn add_link(&self, name: &str, index: u32, info: LinkAttribute) {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::IfName(name.to_owned()), info];
        self.add(RouteNetlinkMessage::NewLink(message), &format!("link {name}"));
    }

    fn add(&self, message: RouteNetlinkMessage, what: &str) {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL, &format!("add {what}"));
    }

    fn request(&self, message: RouteNetlinkMessage, flags: u16, what: &str) {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).unwrap_or_else(|error| panic!("{what}: {error}"));
        let (reply, _) = self.socket.recv_from_full().unwrap_or_else(|error| panic!("{what}: {error}"));
        let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&reply).expect("a message of netlink");
        let NetlinkPayload::Error(error) = reply.payload else {
            panic!("{what}: unexpected reply {:?}", reply.payload)
        };
        if error.code.is_some() {
            panic!("{what}: {}", error.to_io());
        }
    }
}

fn index(link: &str) -> u32 {
    if_nametoindex(link).unwrap_or_else(|error| panic!("link {link}: {error}"))
}

const fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
