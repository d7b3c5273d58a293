//! Routes of one table, and the one that brings marked packets to `lo`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{LOOPBACK, ROUTE_PROTOCOL, Rtnetlink, af, flags};
use crate::kernel::netlink::{Message, Reply};
use crate::model::Family;

/// Length of `struct rtmsg`.
pub(super) const RTMSG: usize = 12;
pub(super) const RTA_DST: u16 = 1;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_PRIORITY: u16 = 6;
pub(super) const RTA_TABLE: u16 = 15;
const RTN_UNSPEC: u8 = 0;
const RTN_LOCAL: u8 = 2;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_HOST: u8 = 254;
const RT_SCOPE_NOWHERE: u8 = 255;
/// An entry of the route cache or of an exception, not of the table.
pub(super) const RTM_F_CLONED: u32 = 0x200;

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The table that holds it.
    pub table: u32,
    /// Where it leads to; `None` for everywhere (the default route).
    pub destination: Option<(IpAddr, u8)>,
    /// Whether it delivers to this machine (`local`).
    pub local: bool,
    /// Whether it goes out by `lo`.
    pub by_lo: bool,
    /// The metric; 0 if none.
    pub metric: u32,
    /// Who added it.
    pub protocol: u8,
}

impl Route {
    /// Whether it is `local default dev lo`, the route that TPROXY needs, ours or foreign.
    #[must_use]
    pub const fn is_local_default(&self) -> bool {
        self.local && self.by_lo && self.destination.is_none()
    }

    /// Whether it carries our protocol number.
    #[must_use]
    pub const fn is_ours(&self) -> bool {
        self.protocol == ROUTE_PROTOCOL
    }
}

/// The result of [`Rtnetlink::add_local_default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalDefault {
    /// There was none.
    New,
    /// There was one, of ours or a foreign one, which does the same.
    AlreadyThere,
}

impl Rtnetlink {
    /// The routes of one table in a family, in the kernel's order.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn routes(&mut self, family: Family, table: u32) -> io::Result<Vec<Route>> {
        let mut header = [0; RTMSG];
        header[0] = af(family);
        let message = Message::new(libc::RTM_GETROUTE, 0, &header).with(RTA_TABLE, &table.to_ne_bytes());
        let routes = self.socket.dump(&message, |list: &mut Vec<Route>, reply| {
            // A kernel without IPv6 replies with the routes of the families that it has.
            if reply.kind == libc::RTM_NEWROUTE && reply.byte(0) == af(family) {
                let wanted = |route: &Route| route.table == table;
                list.extend(read_route(reply).filter(wanted));
            }
        });
        match routes {
            // No such table, no such family.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EAFNOSUPPORT)) => {
                Ok(Vec::new())
            }
            other => other,
        }
    }

    /// Adds `local default dev lo` to a table, unless the route exists already, added by any program.
    ///
    /// # Errors
    /// The kernel refuses; `EEXIST` if the table has another default route, which is not touched.
    pub fn add_local_default(&mut self, family: Family, table: u32) -> io::Result<LocalDefault> {
        if self.routes(family, table)?.iter().any(Route::is_local_default) {
            return Ok(LocalDefault::AlreadyThere);
        }
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        self.socket.request(&local_default(libc::RTM_NEWROUTE, flags, family, table, ROUTE_PROTOCOL))?;
        Ok(LocalDefault::New)
    }

    /// Gives our protocol number to the `local default dev lo` of a table; nothing if there is none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn claim_local_default(&mut self, family: Family, table: u32) -> io::Result<()> {
        let routes = self.routes(family, table)?;
        let mut present = routes.iter().filter(|route| route.is_local_default());
        if present.clone().any(Route::is_ours) {
            return Ok(());
        }
        let Some(other) = present.next() else { return Ok(()) };
        let claim = local_default(libc::RTM_NEWROUTE, libc::NLM_F_REPLACE, family, table, ROUTE_PROTOCOL)
            .with(RTA_PRIORITY, &other.metric.to_ne_bytes());
        self.socket.request(&claim)
    }

    /// Deletes `local default dev lo` from a table: ours, or with `protocol` another's; false if it is not
    /// there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete_local_default(&mut self, family: Family, table: u32, protocol: u8) -> io::Result<bool> {
        let message = local_default(libc::RTM_DELROUTE, 0, family, table, protocol);
        self.delete(&message, &[libc::ESRCH, libc::EAFNOSUPPORT])
    }
}

fn local_default(kind: u16, more: libc::c_int, family: Family, table: u32, protocol: u8) -> Message {
    let deleting = kind == libc::RTM_DELROUTE;
    // Scope "nowhere" matches any when deleting.
    let scope = match family {
        _ if deleting => RT_SCOPE_NOWHERE,
        Family::V4 => RT_SCOPE_HOST,
        Family::V6 => RT_SCOPE_UNIVERSE,
    };
    let header = [af(family), 0, 0, 0, 0, protocol, scope, RTN_LOCAL, 0, 0, 0, 0];
    Message::new(kind, flags(more), &header)
        .with(RTA_TABLE, &table.to_ne_bytes())
        .with(RTA_OIF, &LOOPBACK.to_ne_bytes())
}

pub(super) fn read_route(reply: &Reply<'_>) -> Option<Route> {
    let kind = reply.byte(7);
    if kind == RTN_UNSPEC || reply.word(8) & RTM_F_CLONED != 0 {
        return None;
    }
    let attributes = reply.attributes(RTMSG);
    let number = |kind| attributes.of(kind).and_then(|attribute| attribute.u32());
    let length = reply.byte(1);
    let destination = match attributes.of(RTA_DST).map(|attribute| attribute.payload) {
        Some(bytes) => Some((address(bytes)?, length)),
        None if length == 0 => None,
        None => return None,
    };
    Some(Route {
        table: number(RTA_TABLE).unwrap_or_else(|| u32::from(reply.byte(4))),
        destination: destination.filter(|(_, length)| *length != 0),
        local: kind == RTN_LOCAL,
        by_lo: number(RTA_OIF) == Some(LOOPBACK),
        metric: number(RTA_PRIORITY).unwrap_or(0),
        protocol: reply.byte(5),
    })
}

pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(|octets| IpAddr::V4(Ipv4Addr::from(octets)))
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(|octets| IpAddr::V6(Ipv6Addr::from(octets))))
        .ok()
}
