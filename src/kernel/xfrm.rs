//! Whether IPsec policies exist, by `NETLINK_XFRM`.

use std::io;

use super::netlink::{Message, Protocol, Socket};
use super::{procfs, recording};

const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
/// The lengths of `struct xfrm_userpolicy_id`, `xfrm_userpolicy_info` and `xfrm_userpolicy_default`.
const ID: usize = 64;
const INFO: usize = 168;
const DEFAULT: usize = 3;
/// The offset of the direction in `xfrm_userpolicy_info`, and the first number behind those of packets:
/// policies of single sockets.
const DIRECTION: usize = 160;
const SOCKET_DIRECTION: u8 = 3;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
/// The number of the protocol in `/proc/net/netlink`.
const NETLINK_XFRM: &str = "6";

/// Whether this network namespace has IPsec policies, or drops packets without one; false if the kernel lacks
/// IPsec.
///
/// # Errors
/// The kernel refuses.
pub fn has_policies() -> io::Result<bool> {
    if !is_loaded()? {
        return Ok(false);
    }
    let mut socket = Socket::open(Protocol::Xfrm)?;
    let message = Message::new(XFRM_MSG_GETPOLICY, 0, &[0; ID]);
    let has_policy = socket.dump(&message, |found: &mut bool, reply| {
        let is_policy = reply.kind == XFRM_MSG_NEWPOLICY && reply.body.len() >= INFO;
        *found |= is_policy && reply.byte(DIRECTION) < SOCKET_DIRECTION;
    })?;
    let default = socket.query(&Message::new(XFRM_MSG_GETDEFAULT, 0, &[0; DEFAULT]), |reply| {
        (0..DEFAULT).any(|direction| reply.byte(direction) == XFRM_USERPOLICY_BLOCK)
    });
    // Since 5.15.
    let blocks_by_default = match default {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => false,
        other => other?,
    };
    Ok(has_policy || blocks_by_default)
}

/// Whether policies can be there. A socket would load the module.
fn is_loaded() -> io::Result<bool> {
    let text = recording::text("IPsec policies are possible", &mut || {
        let sockets = procfs::read_own("net/netlink")?;
        let is_there = sockets.lines().any(|line| line.split_whitespace().nth(1) == Some(NETLINK_XFRM));
        Ok(is_there.to_string())
    })?;
    Ok(text == "true")
}
