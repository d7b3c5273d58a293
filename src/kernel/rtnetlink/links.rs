//! Interfaces, and how the kernel validates source addresses on them.

use std::collections::BTreeSet;
use std::io;

use super::Rtnetlink;
use super::address::Listed;
use crate::kernel::netlink::{Attribute, Message, Reply};
use crate::kernel::procfs;
use crate::model::{Family, Link, LinkKind, Links, SourceValidation};
use crate::ordered::Ordered as _;

/// Length of `struct ifinfomsg`.
const IFINFOMSG: usize = 16;
/// Where it has the type of its frames, the index and the flags.
const TYPE: usize = 2;
const INDEX: usize = 4;
const FLAGS: usize = 8;
/// Of linux/if.h: the driver has a carrier.
const IFF_LOWER_UP: libc::c_int = 0x10000;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
/// The family `AF_INET` in `IFLA_AF_SPEC`.
const AF_INET: u16 = 2;
const IFLA_INET_CONF: u16 = 1;
// The numbers of settings in `IFLA_INET_CONF`, counted from 1.
const FORWARDING: usize = 1;
const RP_FILTER: usize = 8;
const ACCEPT_LOCAL: usize = 23;
const SRC_VALID_MARK: usize = 24;
const ROUTE_LOCALNET: usize = 26;

impl Rtnetlink {
    /// Every interface, with the settings that decide over captured packets.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn links(&mut self) -> io::Result<Links> {
        let addresses = self.listed_addresses()?;
        let with_address: BTreeSet<(u32, bool)> = addresses.iter().map(Listed::link).into_set();
        let message = Message::new(libc::RTM_GETLINK, 0, &[0; IFINFOMSG]);
        let mut each = self.socket.dump(&message, |list: &mut Vec<Link>, reply| {
            list.extend(read_link(reply, &with_address));
        })?;
        self.names.extend(each.iter().map(|link| (link.index, link.name.clone())));
        let routes_to_loopback = of_all_links("route_localnet").is_some_and(|value| value != 0);
        for link in &mut each {
            link.routes_to_loopback |= routes_to_loopback;
        }
        Ok(Links {
            each,
            all: of_all(),
            inherits_mark: setting("tcp_fwmark_accept").is_some_and(|value| value != 0),
            always_sends_cookies: setting("tcp_syncookies") == Some(2),
            forwards_v6: network_setting("ipv6/conf/all/forwarding").is_some_and(|value| value != 0),
            filters_bridged: Family::ALL.into_iter().filter(|family| filters_bridged(*family)).collect(),
        })
    }
}

fn read_link(reply: &Reply<'_>, with_address: &BTreeSet<(u32, bool)>) -> Option<Link> {
    if reply.kind != libc::RTM_NEWLINK {
        return None;
    }
    let attributes = reply.attributes(IFINFOMSG);
    let index = reply.word(INDEX);
    let has = |flag| u32::try_from(flag).is_ok_and(|flag| reply.word(FLAGS) & flag != 0);
    let values = attributes.of(IFLA_AF_SPEC).and_then(ipv4_settings);
    let setting = |number: usize| values.as_ref().and_then(|values| values.get(number - 1).copied());
    let is_set = |number| setting(number).is_some_and(|value| value != 0);
    let has_ethernet_frames =
        u16::from_ne_bytes([TYPE, TYPE + 1].map(|at| reply.byte(at))) == libc::ARPHRD_ETHER;
    Some(Link {
        name: attributes.of(IFLA_IFNAME)?.text(),
        index,
        is_up: has(libc::IFF_UP),
        has_carrier: has(IFF_LOWER_UP),
        is_port: attributes.of(IFLA_MASTER).is_some(),
        kind: attributes.of(IFLA_LINKINFO).map_or(LinkKind::Other, |info| kind(info, has_ethernet_frames)),
        peer_namespace: attributes.of(IFLA_LINK_NETNSID).and_then(|number| number.u32()),
        forwards_v4: is_set(FORWARDING),
        has_v4: with_address.contains(&(index, true)),
        has_v6: with_address.contains(&(index, false)),
        routes_to_loopback: is_set(ROUTE_LOCALNET),
        settings: SourceValidation {
            uses_mark: is_set(SRC_VALID_MARK),
            accepts_local: is_set(ACCEPT_LOCAL),
            rp_filter: setting(RP_FILTER).map_or(0, |value| u8::try_from(value).unwrap_or(u8::MAX)),
        },
        xdp_program: attributes.of(IFLA_XDP).and_then(xdp_program),
    })
}

fn kind(info: Attribute<'_>, has_ethernet_frames: bool) -> LinkKind {
    match info.nested().of(IFLA_INFO_KIND).map(|kind| kind.text()).as_deref() {
        Some("bridge") => LinkKind::Bridge,
        // Without Ethernet it is that of a VPN.
        Some("tun") if has_ethernet_frames => LinkKind::Tap,
        Some("veth") => LinkKind::Veth,
        _ => LinkKind::Other,
    }
}

/// The number of the program; 0 if the kernel does not say.
fn xdp_program(xdp: Attribute<'_>) -> Option<u32> {
    let is_attached = xdp.nested().of(IFLA_XDP_ATTACHED)?.byte()? != 0;
    is_attached.then(|| xdp.nested().of(IFLA_XDP_PROG_ID).and_then(|number| number.u32()).unwrap_or(0))
}

/// The settings `net.ipv4.conf.NAME`, by their numbers.
fn ipv4_settings(families: Attribute<'_>) -> Option<Vec<u32>> {
    let values = families.nested().of(AF_INET)?.nested().of(IFLA_INET_CONF)?.payload;
    let (values, _) = values.as_chunks::<4>();
    Some(values.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect())
}

/// The settings of all interfaces, which netlink does not list. Without `/proc` the kernel's defaults.
fn of_all() -> SourceValidation {
    SourceValidation {
        uses_mark: of_all_links("src_valid_mark").is_some_and(|value| value != 0),
        accepts_local: of_all_links("accept_local").is_some_and(|value| value != 0),
        rp_filter: of_all_links("rp_filter").unwrap_or(0),
    }
}

fn of_all_links(name: &str) -> Option<u8> {
    setting(&["conf/all/", name].concat())
}

fn filters_bridged(family: Family) -> bool {
    let name = match family {
        Family::V4 => "bridge-nf-call-iptables",
        Family::V6 => "bridge-nf-call-ip6tables",
    };
    network_setting(&["bridge/", name].concat()).is_some_and(|value| value != 0)
}

fn setting(name: &str) -> Option<u8> {
    network_setting(&["ipv4/", name].concat())
}

/// A setting of this thread's network namespace.
fn network_setting(name: &str) -> Option<u8> {
    let path = ["/proc/sys/net/", name].concat();
    procfs::read_if_present(path).ok()??.trim().parse().ok()
}
