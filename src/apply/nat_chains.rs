//! NAT of iptables-nft on kernels before 4.18.
//!
//! These kernels translate a packet only at hooks with a NAT base chain, and the tools create only chains
//! that have rules: ours are in PREROUTING and OUTPUT, but replies are translated back at POSTROUTING and
//! INPUT. Without these two chains, captured connections get no reply.

use crate::kernel::release::Release;
use crate::model::{Table, Variant};
use crate::plan::Step;

/// Has the tools make all base chains of NAT, where the running kernel needs them.
pub(super) fn complete(steps: &mut [Step]) {
    if Release::NAT_AT_EVERY_HOOK.is_after_running() {
        declare(steps);
    }
}

fn declare(steps: &mut [Step]) {
    for step in steps {
        if let Step::Restore(restore) = step
            && restore.variant == Variant::Nft
        {
            for change in restore.change.tables.iter_mut().filter(|change| change.table == Table::Nat) {
                change.declare_reply_chains = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Chain, Family};
    use crate::plan::Restore;
    use crate::reconcile::{Change, TableChange};

    #[test]
    fn chains_are_declared_in_the_nat_table_of_iptables_nft_only() {
        let step = |variant| {
            let table = |table| TableChange {
                declare: [(Chain::Output, Vec::new())].into(),
                ..TableChange::of(table)
            };
            let tables = vec![table(Table::Mangle), table(Table::Nat)];
            Step::Restore(Restore { variant, change: Change { tables, ..Change::empty(Family::V6) } })
        };
        let mut steps = Variant::ALL.map(step);
        declare(&mut steps);
        for (step, variant) in steps.iter().zip(Variant::ALL) {
            let Step::Restore(restore) = step else { panic!("{step}") };
            let declared =
                if variant == Variant::Nft { ":INPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n" } else { "" };
            let text = format!(
                "*mangle\n:ISTIO_OUTPUT - [0:0]\nCOMMIT\n*nat\n{declared}:ISTIO_OUTPUT - [0:0]\nCOMMIT\n"
            );
            assert_eq!(restore.text(), text);
        }
    }
}
