//! The families and the protocol that native rules are about.

use std::collections::BTreeSet;

use nfnetlink::nftables::{Expression, MetaKey, Rule, Table};

use crate::model::Family;
use crate::ordered::Ordered as _;

/// The nat table.
pub(super) const NAT: &str = "istio-proxy-nat";

/// The families whose packets meet a rule in a base chain.
pub(super) fn families(table: &Table) -> BTreeSet<Family> {
    let base = table.chains.iter().filter(|chain| chain.base.is_some()).flat_map(|chain| &chain.rules);
    base.flat_map(|rule| family_of(rule).map_or(Family::ALL.to_vec(), |family| vec![family])).into_set()
}

/// The only family of a rule, if it names one.
#[must_use]
pub fn family_of(rule: &Rule) -> Option<Family> {
    match compared(rule, MetaKey::NetworkProtocol)? {
        [2] => Some(Family::V4),
        [10] => Some(Family::V6),
        _ => None,
    }
}

/// What a property of the packet is compared with.
fn compared(rule: &Rule, property: MetaKey) -> Option<&[u8]> {
    rule.expressions.windows(2).find_map(|pair| match pair {
        [Expression::Meta { key, .. }, Expression::Compare { value, .. }] if *key == property => {
            Some(value.as_slice())
        }
        _ => None,
    })
}
