//! Matches and targets of iptables, as nf_tables and legacy tables hold them.

mod conntrack;
mod matches;
mod targets;

use std::net::IpAddr;

use super::decode::{address, half, number};
use crate::model::Family;

pub(in crate::parse) use matches::of_match;
pub(in crate::parse) use targets::of_target;
pub(super) use targets::queue;

/// `NFTA_MATCH_NAME`, `NFTA_TARGET_NAME`.
pub(super) const XT_NAME: u16 = 1;
/// `NFTA_MATCH_REV`, `NFTA_TARGET_REV`.
const XT_REVISION: u16 = 2;
/// `NFTA_MATCH_INFO`, `NFTA_TARGET_INFO`: the structure of linux/netfilter/xt_*.h.
const XT_INFO: u16 = 3;

/// An extension of iptables.
#[derive(Clone, Copy)]
pub(in crate::parse) struct Extension<'a> {
    pub(in crate::parse) family: Family,
    pub(in crate::parse) revision: u32,
    /// The parameters of the extension: the structure of linux/netfilter/xt_*.h.
    pub(in crate::parse) info: &'a [u8],
}

/// The words of an extension, by its name, revision and parameters; `None` if they are not understood.
pub(super) fn extension(
    family: Family,
    data: &[u8],
    words: fn(&str, Extension<'_>) -> Option<String>,
) -> Option<String> {
    let attributes = nfnetlink::Attributes::new(data);
    let (name, revision) = (attributes.of(XT_NAME)?.text(), attributes.of(XT_REVISION)?.be32()?);
    words(&name, Extension { family, revision, info: attributes.of(XT_INFO)?.payload })
}

impl Extension<'_> {
    fn byte(self, at: usize) -> Option<u8> {
        self.info.get(at).copied()
    }

    fn half(self, at: usize) -> Option<u16> {
        half(self.info, at)
    }

    fn number(self, at: usize) -> Option<u32> {
        number(self.info, at)
    }

    /// A number in network byte order.
    fn be_half(self, at: usize) -> Option<u16> {
        self.half(at).map(u16::from_be)
    }

    /// A `union nf_inet_addr`.
    fn address(self, at: usize) -> Option<IpAddr> {
        let length = if self.family == Family::V4 { 4 } else { 16 };
        address(self.family, self.info.get(at..at + length)?)
    }
}

/// The names of the bits that are set; `None` if one has no name.
fn names(bits: u32, known: &[(u32, &str)]) -> Option<String> {
    let all: u32 = known.iter().map(|(bit, _)| bit).sum();
    let names: Vec<&str> = known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    (bits != 0 && bits & !all == 0).then(|| names.join(","))
}

const fn not(is_negated: bool) -> &'static str {
    if is_negated { "! " } else { "" }
}

fn range<T: Copy + PartialEq + std::fmt::Display>(first: T, last: T, to: char) -> String {
    if first == last { first.to_string() } else { format!("{first}{to}{last}") }
}
