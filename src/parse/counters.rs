//! Counters of rules, by chain and in order.

use std::collections::BTreeMap;

use nfnetlink::nftables::{Expression, Rule, Table as NftTable};

use super::native_tables::{hook_of, table_of};
use super::words::chain_name;
use super::{chain_and_words, words};
use crate::model::Table;

/// What a rule has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
}

/// The counts of each chain, in the order of its rules.
pub type Counters = BTreeMap<(Table, String), Vec<Counts>>;

/// The counts in rules in the format of `iptables-save -c`.
#[must_use]
pub fn counters(text: &str) -> Counters {
    let mut counters = Counters::new();
    let mut current = None;
    for line in words::records(text) {
        if let Some(name) = line.strip_prefix('*') {
            current = Table::ALL.into_iter().find(|table| table.name() == name.trim());
            // As in `iptables_save`: the last of two counts.
            counters.retain(|(table, _), _| Some(*table) != current);
        } else if let (Some(table), Some((chain, _))) = (current, chain_and_words(line)) {
            counters.entry((table, chain.to_owned())).or_default().push(counts_of(line).unwrap_or_default());
        }
    }
    counters
}

/// `[packets:bytes] -A ...`.
fn counts_of(line: &str) -> Option<Counts> {
    let (packets, bytes) = line.strip_prefix('[')?.split_once(']')?.0.split_once(':')?;
    Some(Counts { packets: packets.parse().ok()?, bytes: bytes.parse().ok()? })
}

/// The counts in the tables of native nftables, with the names of chains in iptables.
#[must_use]
pub fn native_counters(tables: &[NftTable]) -> Counters {
    let mut counters = Counters::new();
    for (table, live) in tables.iter().filter_map(|live| Some((table_of(live)?, live))) {
        for chain in &live.chains {
            let name = hook_of(chain).map_or_else(|| chain_name(&chain.name), |hook| hook.name().to_owned());
            counters.insert((table, name), chain.rules.iter().map(counted).collect());
        }
    }
    counters
}

pub(super) fn counted(rule: &Rule) -> Counts {
    let counts = |expression: &Expression| {
        let Expression::Counter { packets, bytes } = expression else { return None };
        Some(Counts { packets: *packets, bytes: *bytes })
    };
    rule.expressions.iter().find_map(counts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_in_the_order_of_rules() {
        let text = "*nat\n:OUTPUT ACCEPT [5:6]\n[1:60] -A OUTPUT -j ISTIO_OUTPUT\n[0:0] -A OUTPUT -j RETURN\n\
                    [7:8] -A ISTIO_OUTPUT -j RETURN\nCOMMIT\n*filter\n[9:9] -A OUTPUT -j DROP\nCOMMIT\n";
        let found = counters(text);
        let of = |chain: &str| {
            let counts = found.get(&(Table::Nat, chain.to_owned())).expect("the chain");
            counts.iter().map(|counts| (counts.packets, counts.bytes)).collect::<Vec<_>>()
        };
        assert_eq!((of("OUTPUT"), of("ISTIO_OUTPUT"), found.len()), (vec![(1, 60), (0, 0)], vec![(7, 8)], 2));
    }
}
