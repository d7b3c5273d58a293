//! The names of links, and the alias of `lo`.

use std::io;

use super::{LOOPBACK, Rtnetlink};
use crate::kernel::netlink::Message;

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

impl Rtnetlink {
    /// The name of the link with this number.
    ///
    /// # Errors
    /// There is none, or the kernel refuses.
    pub(super) fn link_name(&mut self, index: u32) -> io::Result<String> {
        let name = self.socket.query(&message(libc::RTM_GETLINK, index), |reply| {
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
