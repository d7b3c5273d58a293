//! Where rules of other programs' nftables send packets.

use nfnetlink::nftables::{Expression, Register};

use super::Reader;
use super::decode::{address, port};
use crate::model::Family;

/// Attributes of `nat` and of `redir`: registers with the first and the last value.
const ADDRESS: (u16, u16) = (3, 4);
const PORT: (u16, u16) = (5, 6);
const OWN_PORT: (u16, u16) = (1, 2);
/// Attribute of `tproxy` with the register of the port, which has no last value.
const TPROXY_PORT: (u16, u16) = (3, u16::MAX);
/// A target of which the rest of a rule depends on whether it finds a socket.
pub(super) const TPROXY: &str = "-j TPROXY";
/// In the place of what a map gives.
const UNREAD: &str = "map";

impl Reader {
    /// Another destination, or that it is another source.
    #[allow(clippy::wildcard_enum_match_arm, reason = "no other expression does")]
    pub(super) fn translation(&mut self, expression: &Expression) -> Option<()> {
        const TYPE: u16 = 1;
        const FAMILY: u16 = 2;
        const TO_DESTINATION: u32 = 1;
        let target = match expression {
            Expression::Redirect { port: None } => "-j REDIRECT".to_owned(),
            Expression::Redirect { port: Some(register) } => {
                let port = self.constant(*register).and_then(port);
                let port = port.map_or_else(|| UNREAD.to_owned(), |port| port.to_string());
                format!("-j REDIRECT --to-ports {port}")
            }
            Expression::Tproxy { port: register, .. } => {
                let port = self.constant(*register).and_then(port);
                let port = port.map_or_else(String::new, |port| format!(" --on-port {port}"));
                format!("{TPROXY}{port}")
            }
            // With an address, which is the socket's in any case.
            Expression::Foreign { name, data } if name == "tproxy" => {
                let port = self.ends(nfnetlink::Attributes::new(data), TPROXY_PORT, port);
                port.map_or_else(|| TPROXY.to_owned(), |port| format!("{TPROXY} --on-port {port}"))
            }
            Expression::Foreign { name, data } if name == "redir" => {
                let attributes = nfnetlink::Attributes::new(data);
                let ports = self.ends(attributes, OWN_PORT, port);
                format!("-j REDIRECT --to-ports {}", ports.unwrap_or_else(|| UNREAD.to_owned()))
            }
            Expression::Foreign { name, data } if name == "nat" => {
                let attributes = nfnetlink::Attributes::new(data);
                // In a table for both families it has no effect on packets of the other one.
                if attributes.of(FAMILY).and_then(|of| of.be32()).is_some_and(|of| is_other(of, self.family))
                {
                    return Some(());
                }
                if attributes.of(TYPE)?.be32()? == TO_DESTINATION {
                    format!("-j DNAT --to-destination {}", self.destination(attributes))
                } else {
                    "-j SNAT".to_owned()
                }
            }
            _ => return None,
        };
        self.loaded = None;
        self.fields.clear();
        self.constants.clear();
        self.aim(target);
        Some(())
    }

    fn destination(&self, attributes: nfnetlink::Attributes<'_>) -> String {
        let family = self.family;
        let has = |(first, _): (u16, u16)| attributes.of(first).is_some();
        let addresses = self.ends(attributes, ADDRESS, |value| address(family, value));
        let ports = self.ends(attributes, PORT, port);
        let unread = |ends, found: Option<String>| {
            if has(ends) { Some(found.unwrap_or_else(|| UNREAD.to_owned())) } else { None }
        };
        match (unread(ADDRESS, addresses), unread(PORT, ports)) {
            (Some(addresses), Some(ports)) if family == Family::V6 => format!("[{addresses}]:{ports}"),
            (addresses, Some(ports)) => format!("{}:{ports}", addresses.unwrap_or_default()),
            (addresses, None) => addresses.unwrap_or_else(|| UNREAD.to_owned()),
        }
    }

    /// The first and the last value, or the only one, if they are constants.
    fn ends<T: PartialEq + std::fmt::Display>(
        &self,
        attributes: nfnetlink::Attributes<'_>,
        (first, last): (u16, u16),
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<String> {
        let value = |kind: u16| read(self.constant(Register(attributes.of(kind)?.be32()?))?);
        let first = value(first)?;
        match attributes.of(last) {
            Some(_) => {
                let last = value(last)?;
                Some(if first == last { first.to_string() } else { format!("{first}-{last}") })
            }
            None => Some(first.to_string()),
        }
    }

    fn constant(&self, register: Register) -> Option<&[u8]> {
        let last = self.constants.iter().rev().find(|(known, _)| *known == register);
        last.map(|(_, value)| value.as_slice())
    }
}

/// Whether a number of a network protocol is that of the other family.
fn is_other(protocol: u32, family: Family) -> bool {
    let other = match family {
        Family::V4 => libc::NFPROTO_IPV6,
        Family::V6 => libc::NFPROTO_IPV4,
    };
    i32::try_from(protocol) == Ok(other)
}
