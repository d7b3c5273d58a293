//! The names of links, and the alias of `lo`.

use std::io;

use super::{LOOPBACK, Rtnetlink};
use crate::kernel::netlink::Message;
use crate::kernel::recording;

/// Length of `struct ifinfomsg`.
const IFINFOMSG: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_IFALIAS: u16 = 20;

fn message(kind: u16, link: u32) -> Message {
    let mut header = [0; IFINFOMSG];
    // The field `ifi_index`.
    for (byte, value) in header.iter_mut().skip(4).zip(link.to_ne_bytes()) {
        *byte = value;
    }
    Message::new(kind, 0, &header)
}

/// Asks for a link without its counters, which the kernel sums up over all processors.
pub(super) fn link_without_counters(link: u32) -> Message {
    const IFLA_EXT_MASK: u16 = 29;
    const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
    message(libc::RTM_GETLINK, link).with(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes())
}

impl Rtnetlink {
    /// The name of the link with this number, `if5` for one that has gone meanwhile.
    pub(super) fn link_name(&mut self, index: u32) -> String {
        if let Some(name) = self.names.get(&index) {
            return name.clone();
        }
        let name = recording::text(&format!("name of interface {index}"), &mut || self.listed_name(index));
        let name = name.unwrap_or_else(|_| format!("if{index}"));
        self.names.insert(index, name.clone());
        name
    }

    fn listed_name(&mut self, index: u32) -> io::Result<String> {
        let name = self.socket.query(&link_without_counters(index), |reply| {
            reply.attributes(IFINFOMSG).of(IFLA_IFNAME).map(|attribute| attribute.text())
        })?;
        name.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The alias of `lo`; `None` if it has none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn loopback_alias(&mut self) -> io::Result<Option<String>> {
        let alias = self.socket.query(&message(libc::RTM_GETLINK, LOOPBACK), |reply| {
            reply.attributes(IFINFOMSG).of(IFLA_IFALIAS).map(|attribute| attribute.text())
        })?;
        Ok(alias.filter(|alias| !alias.is_empty()))
    }

    /// Sets the alias of `lo`; an empty one takes it away.
    ///
    /// # Errors
    /// The kernel refuses; `EINVAL` for more than 255 bytes.
    pub fn set_loopback_alias(&mut self, alias: &str) -> io::Result<()> {
        // Without a NUL: the kernel takes the length, and an empty attribute deletes the alias.
        self.socket.request(&message(libc::RTM_SETLINK, LOOPBACK).with(IFLA_IFALIAS, alias.as_bytes()))
    }
}
