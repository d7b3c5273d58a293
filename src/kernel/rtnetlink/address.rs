//! Addresses of interfaces, and `::6` on `lo`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{Added, LOOPBACK, ROUTE_PROTOCOL, Rtnetlink, flags};
use crate::kernel::netlink::{Message, Reply};
use crate::kernel::{procfs, recording};
use crate::model::{Family, InterfaceAddress, PASSTHROUGH_V6, SourceAddress};

/// Length of `struct ifaddrmsg`.
const IFADDRMSG: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_PROTO: u16 = 11;
/// No duplicate address detection: `lo` has no neighbours.
const IFA_F_NODAD: u8 = 0x02;
const IFA_F_TENTATIVE: u8 = 0x40;

/// `::6/128` as present on `lo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassthroughAddress {
    /// The protocol number of the address; `None` on kernels before 5.18, and where none was set.
    pub protocol: Option<u8>,
}

impl PassthroughAddress {
    /// Whether it carries our protocol number.
    #[must_use]
    pub fn ours(self) -> bool {
        self.protocol == Some(ROUTE_PROTOCOL)
    }
}

/// An address as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    link: u32,
    address: IpAddr,
    prefix: u8,
    protocol: Option<u8>,
    scope: u8,
    flags: u8,
}

impl Listed {
    /// The index of its interface, and whether it is an IPv4 address.
    pub(super) const fn link(&self) -> (u32, bool) {
        (self.link, self.address.is_ipv4())
    }
}

impl Rtnetlink {
    /// Every address of every link, in the kernel's order: IPv4 before IPv6.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn addresses(&mut self) -> io::Result<Vec<InterfaceAddress>> {
        let named = self.listed_addresses()?.into_iter().map(|listed| InterfaceAddress {
            interface: self.link_name(listed.link),
            address: listed.address,
            prefix: listed.prefix,
        });
        Ok(named.collect())
    }

    /// The addresses of a family, of which the kernel chooses the source of packets, in its order.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn source_addresses(&mut self, family: Family) -> io::Result<Vec<SourceAddress>> {
        const IFA_F_SECONDARY: u8 = 0x01;
        const IFA_F_DEPRECATED: u8 = 0x20;
        let listed = self.listed_addresses()?.into_iter();
        let of_family = listed.filter(|listed| listed.address.is_ipv4() == (family == Family::V4));
        let address = |Listed { link, address, prefix, protocol: _, scope, flags }: Listed| SourceAddress {
            interface: self.link_name(link),
            address,
            prefix,
            scope,
            // In IPv6 the same bit means a temporary address.
            is_secondary: family == Family::V4 && flags & IFA_F_SECONDARY != 0,
            is_deprecated: flags & IFA_F_DEPRECATED != 0,
            is_tentative: flags & IFA_F_TENTATIVE != 0,
        };
        Ok(of_family.map(address).collect())
    }

    /// The IPv6 addresses whose duplicates the kernel still looks for. Nothing is delivered to them or sent
    /// from them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detected_addresses(&mut self) -> io::Result<Vec<InterfaceAddress>> {
        const IFA_F_OPTIMISTIC: u8 = 0x04;
        const IFA_F_DADFAILED: u8 = 0x08;
        let ends =
            |flags: u8| flags & IFA_F_TENTATIVE != 0 && flags & (IFA_F_OPTIMISTIC | IFA_F_DADFAILED) == 0;
        let listed: Vec<Listed> =
            self.listed_addresses()?.into_iter().filter(|listed| ends(listed.flags)).collect();
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        let links = self.links()?.each;
        // Elsewhere it does not begin.
        let is_up = |index| links.iter().any(|link| link.index == index && link.is_up && link.has_carrier);
        let named = listed.into_iter().filter(|listed| is_up(listed.link)).map(|listed| InterfaceAddress {
            interface: self.link_name(listed.link),
            address: listed.address,
            prefix: listed.prefix,
        });
        Ok(named.collect())
    }

    /// `::6/128` on `lo`, if it is there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn passthrough_address(&mut self) -> io::Result<Option<PassthroughAddress>> {
        let wanted = |listed: &&Listed| {
            listed.link == LOOPBACK && listed.address == IpAddr::V6(PASSTHROUGH_V6) && listed.prefix == 128
        };
        let found = self.listed_addresses()?.iter().find(wanted).map(|listed| listed.protocol);
        Ok(found.map(|protocol| PassthroughAddress { protocol }))
    }

    /// Puts `::6/128` on `lo`, with our protocol number where the kernel keeps one. One that is there stays
    /// as it is.
    ///
    /// # Errors
    /// The kernel refuses: `EACCES` or `EPERM` for instance while IPv6 is disabled on `lo`.
    pub fn add_passthrough_address(&mut self) -> io::Result<Added> {
        add_passthrough(&mut |message| self.add(message))
    }

    /// Gives our protocol number to `::6/128` on `lo`, whichever program added it; adds it if it is not
    /// there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn claim_passthrough_address(&mut self) -> io::Result<()> {
        let message = passthrough_message(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
            .with(IFA_PROTO, &[ROUTE_PROTOCOL]);
        self.socket.request(&message)
    }

    /// Takes `::6/128` off `lo`, whichever program added it; false if it was not there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete_passthrough_address(&mut self) -> io::Result<bool> {
        self.delete(&passthrough_message(libc::RTM_DELADDR, 0), &[libc::EADDRNOTAVAIL])
    }

    pub(super) fn listed_addresses(&mut self) -> io::Result<Vec<Listed>> {
        let all_families = Message::new(libc::RTM_GETADDR, 0, &[0; IFADDRMSG]);
        self.socket.dump(&all_families, |list: &mut Vec<Listed>, reply| list.extend(read_address(reply)))
    }
}

/// Adds `::6/128` to `lo`; `kernel` sends the request.
pub(super) fn add_passthrough(kernel: &mut dyn FnMut(&Message) -> io::Result<Added>) -> io::Result<Added> {
    let message = || passthrough_message(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
    match kernel(&message().with(IFA_PROTO, &[ROUTE_PROTOCOL])) {
        // gVisor does so, although it has added the address.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => kernel(&message()),
        added => added,
    }
}

/// A message about `::6/128` on `lo`.
fn passthrough_message(kind: u16, more: libc::c_int) -> Message {
    let [i0, i1, i2, i3] = LOOPBACK.to_ne_bytes();
    let family = super::af(Family::V6);
    Message::new(kind, flags(more), &[family, 128, IFA_F_NODAD, 0, i0, i1, i2, i3])
        .with(IFA_LOCAL, &PASSTHROUGH_V6.octets())
        .with(IFA_ADDRESS, &PASSTHROUGH_V6.octets())
}

pub(super) fn read_address(reply: &Reply<'_>) -> Option<Listed> {
    if reply.kind != libc::RTM_NEWADDR {
        return None;
    }
    let attributes = reply.attributes(IFADDRMSG);
    // On a point-to-point link IFA_ADDRESS is the peer's.
    let bytes = attributes.of(IFA_LOCAL).or_else(|| attributes.of(IFA_ADDRESS))?.payload;
    let address = match i32::from(reply.byte(0)) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    let protocol = attributes.of(IFA_PROTO).and_then(|attribute| attribute.byte());
    let [prefix, flags, scope] = [1, 2, 3].map(|offset| reply.byte(offset));
    Some(Listed { link: reply.word(4), address, prefix, protocol, scope, flags })
}

/// Whether the kernel does IPv6 in this thread's network namespace. Given `addresses`, those of its links.
///
/// The switch `disable_ipv6` alone proves nothing: it may be off for one link that has got an address.
///
/// # Errors
/// `/proc` cannot be read.
pub fn ipv6_usable(addresses: &[InterfaceAddress]) -> io::Result<bool> {
    let Some(switch) = procfs::read_if_present("/proc/sys/net/ipv6/conf/all/disable_ipv6")? else {
        // The kernel does no IPv6, or the file is hidden.
        return Ok(if procfs::is_mounted() {
            procfs::own_exists("net/if_inet6")
        } else {
            let open = || socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
            recording::text("sockets of IPv6", &mut || Ok(open().map(|_| String::new())?)).is_ok()
        });
    };
    Ok(switch.trim() != "1" || addresses.iter().any(|address| address.address.is_ipv6()))
}
