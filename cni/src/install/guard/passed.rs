//! What the rules of others have counted that a repair of iptables-nft removes.
//!
//! The tools write rules of ours again, with other handles and without counts: what a rule does tells whether
//! it is gone.

use istio_iptables::kernel::netlink::nftables::{Expression, Rule};
use istio_iptables::kernel::observe::tables_of_iptables;
use istio_iptables::model::Family;

/// A rule with its family, table and chain.
type InChain = (Family, String, String, Rule);

/// The live rules of iptables-nft; none of what cannot be read.
pub(super) fn rules() -> Vec<InChain> {
    let mut rules = Vec::new();
    for family in Family::ALL {
        let tables = tables_of_iptables(family).map(|(_, tables)| tables).unwrap_or_default();
        for (table, chains, _) in tables {
            for chain in chains {
                let in_chain = |rule| (family, table.name.clone(), chain.name.clone(), rule);
                rules.extend(chain.rules.into_iter().map(in_chain));
            }
        }
    }
    rules
}

/// The packets that rules had met which are not there any more.
pub(super) fn removed(before: &[InChain], after: &[InChain]) -> u64 {
    let mut left: Vec<&InChain> = after.iter().collect();
    let mut packets = 0_u64;
    for rule in before {
        match left.iter().position(|other| is_same(rule, other)) {
            Some(at) => drop(left.swap_remove(at)),
            None => packets = packets.saturating_add(counted(&rule.3)),
        }
    }
    packets
}

fn is_same(one: &InChain, other: &InChain) -> bool {
    let does = |rule: &Rule| -> Vec<Expression> {
        let is_count = |expression: &&Expression| matches!(expression, Expression::Counter { .. });
        rule.expressions.iter().filter(|expression| !is_count(expression)).cloned().collect()
    };
    (one.0, &one.1, &one.2) == (other.0, &other.1, &other.2) && does(&one.3) == does(&other.3)
}

fn counted(rule: &Rule) -> u64 {
    let packets = |expression: &Expression| {
        if let Expression::Counter { packets, .. } = expression { Some(*packets) } else { None }
    };
    rule.expressions.iter().find_map(packets).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use istio_iptables::kernel::netlink::nftables::Verdict;

    use super::*;

    fn rule(chain: &str, verdict: Verdict, packets: u64, handle: u64) -> InChain {
        let expressions = vec![Expression::Counter { packets, bytes: 0 }, Expression::Verdict(verdict)];
        let rule = Rule { handle: Some(handle), ..Rule::new(expressions) };
        (Family::V4, "nat".to_owned(), chain.to_owned(), rule)
    }

    #[test]
    fn rules_that_were_written_again_without_their_counts_are_not_removed_ones() {
        let before = [
            rule("ISTIO_OUTPUT", Verdict::Return, 7, 9),
            rule("ISTIO_OUTPUT", Verdict::Accept, 1000, 2),
            rule("OUTPUT", Verdict::Accept, 500, 3),
        ];
        let after = [rule("ISTIO_OUTPUT", Verdict::Accept, 0, 12), rule("OUTPUT", Verdict::Accept, 0, 13)];
        assert_eq!(removed(&before, &after), 7);
        assert_eq!(removed(&before, &before), 0);
        assert_eq!(removed(&after, &before), 0, "those that are missing had counted nothing");
        assert_eq!(removed(&before[..1], &[]), 7);
        let twice = [rule("OUTPUT", Verdict::Accept, 5, 1), rule("OUTPUT", Verdict::Accept, 6, 2)];
        assert_eq!(removed(&twice, &twice[..1]), 6, "one of two that are the same");
    }
}
