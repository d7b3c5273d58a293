//! IPsec policies, by `NETLINK_XFRM`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use super::netlink::{Message, Protocol, Reply, Socket};
use super::{procfs, recording};
use crate::model::{Ipsec, IpsecAction, IpsecDirection, IpsecPolicy};

const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
/// The lengths of `struct xfrm_userpolicy_id`, `xfrm_userpolicy_info` and `xfrm_userpolicy_default`.
const ID: usize = 64;
const INFO: usize = 168;
const DEFAULT: usize = 3;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
/// Where `xfrm_userpolicy_info` has what it has.
const DESTINATION: usize = 0;
const SOURCE: usize = 16;
const DESTINATION_PORT: usize = 32;
const SOURCE_PORT: usize = 36;
const FAMILY: usize = 40;
const DESTINATION_PREFIX: usize = 42;
const SOURCE_PREFIX: usize = 43;
const PROTOCOL: usize = 44;
const INTERFACE: usize = 48;
const USER: usize = 52;
const PRIORITY: usize = 152;
const DIRECTION: usize = 160;
const ACTION: usize = 161;

const XFRMA_TMPL: u16 = 5;
const XFRMA_MARK: u16 = 21;
const XFRMA_IF_ID: u16 = 31;
/// The length of `struct xfrm_user_tmpl`, and where it has whether it is optional.
const TEMPLATE: usize = 64;
const OPTIONAL: usize = 50;
/// The number of the protocol in `/proc/net/netlink`.
const NETLINK_XFRM: &str = "6";

/// The policies of this network namespace; empty if the kernel lacks IPsec.
///
/// # Errors
/// The kernel refuses.
pub fn policies() -> io::Result<Ipsec> {
    if !is_loaded()? {
        return Ok(Ipsec::default());
    }
    let mut socket = Socket::open(Protocol::Xfrm)?;
    let message = Message::new(XFRM_MSG_GETPOLICY, 0, &[0; ID]);
    let mut policies = socket.dump(&message, |list: &mut Vec<IpsecPolicy>, reply| {
        list.extend(policy(reply));
    })?;
    // The latest is listed first, and of one priority the earliest counts.
    policies.reverse();
    policies.sort_by_key(|policy| policy.priority);
    let default = socket.query(&Message::new(XFRM_MSG_GETDEFAULT, 0, &[0; DEFAULT]), |reply| {
        let directions = [IpsecDirection::In, IpsecDirection::Forward, IpsecDirection::Out];
        let blocks = |(at, _): &(usize, IpsecDirection)| reply.byte(*at) == XFRM_USERPOLICY_BLOCK;
        directions.into_iter().enumerate().filter(blocks).map(|(_, direction)| direction).collect()
    });
    // Since 5.15.
    let blocked_by_default = match default {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Vec::new(),
        other => other?,
    };
    Ok(Ipsec { policies, blocked_by_default })
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

fn policy(reply: &Reply<'_>) -> Option<IpsecPolicy> {
    if reply.kind != XFRM_MSG_NEWPOLICY || reply.body.len() < INFO {
        return None;
    }
    let direction = match reply.byte(DIRECTION) {
        0 => IpsecDirection::In,
        1 => IpsecDirection::Out,
        2 => IpsecDirection::Forward,
        // Those of single sockets.
        _ => return None,
    };
    let (mut action, mut mark, mut is_by_interface) = (IpsecAction::Pass, (0, 0), false);
    for attribute in reply.attributes(INFO) {
        match attribute.kind {
            XFRMA_TMPL => {
                let (templates, _) = attribute.payload.as_chunks::<TEMPLATE>();
                let is_required = |template: &[u8; TEMPLATE]| template.get(OPTIONAL) == Some(&0);
                action = if templates.iter().any(is_required) { IpsecAction::Transform } else { action };
            }
            XFRMA_MARK => {
                let (words, _) = attribute.payload.as_chunks::<4>();
                let word = |at: usize| words.get(at).map_or(0, |bytes| u32::from_ne_bytes(*bytes));
                mark = (word(0), word(1));
            }
            // Only what passes an interface of the kind xfrm has such a number.
            XFRMA_IF_ID => is_by_interface = attribute.u32().is_some_and(|number| number != 0),
            _ => {}
        }
    }
    if is_by_interface {
        return None;
    }
    if reply.byte(ACTION) == XFRM_USERPOLICY_BLOCK {
        action = IpsecAction::Block;
    }
    let port = |at: usize| {
        let half = |at: usize| u16::from_be_bytes([reply.byte(at), reply.byte(at + 1)]);
        (half(at), half(at + 2))
    };
    Some(IpsecPolicy {
        direction,
        action,
        source: network(reply, SOURCE, SOURCE_PREFIX)?,
        destination: network(reply, DESTINATION, DESTINATION_PREFIX)?,
        source_port: port(SOURCE_PORT),
        destination_port: port(DESTINATION_PORT),
        protocol: reply.byte(PROTOCOL),
        mark,
        priority: reply.word(PRIORITY),
        has_other_tests: reply.word(INTERFACE) != 0 || reply.word(USER) != 0,
    })
}

fn network(reply: &Reply<'_>, at: usize, prefix: usize) -> Option<IpNetwork> {
    let v6 = u8::try_from(libc::AF_INET6).is_ok_and(|family| reply.byte(FAMILY) == family);
    let bytes = reply.body.get(at..)?;
    let address: IpAddr = if v6 {
        Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()
    } else {
        Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()
    };
    IpNetwork::new(address, reply.byte(prefix)).ok()
}
