//! NAT of iptables-nft on kernels before 4.18.
//!
//! These kernels translate a packet only at hooks with a NAT base chain, and the tools create only chains that have
//! rules: ours are in PREROUTING and OUTPUT, but replies are translated back at POSTROUTING and INPUT. Without these
//! two chains, captured connections get no reply.

use crate::kernel::release::Release;
use crate::model::Variant;
use crate::plan::Step;

/// Has the tools make all base chains of NAT, where the running kernel needs them.
pub(super) fn complete(steps: &mut [Step]) {
    if Release::NAT_AT_EVERY_HOOK.is_after_running() {
        declare(steps);
    }
}

/// The tools take this policy only; it is the one that the chains have.
const CHAINS: &str = "*nat\n:INPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n";

fn declare(steps: &mut [Step]) {
    for step in steps {
        if let Step::Restore(restore) = step
            && restore.variant == Variant::Nft
        {
            restore.text = restore.text.replace("*nat\n", CHAINS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Family;
    use crate::plan::Restore;

    #[test]
    fn chains_are_declared_in_the_nat_table_of_iptables_nft_only() {
        let text = "*mangle\n-A OUTPUT -j DROP\nCOMMIT\n*nat\n:ISTIO_OUTPUT - [0:0]\nCOMMIT\n";
        let step = |variant| {
            let text = text.to_owned();
            Step::Restore(Restore {
                variant,
                family: Family::V6,
                text,
                tables: Vec::new(),
                by_position: false,
            })
        };
        let mut steps = Variant::ALL.map(step);
        declare(&mut steps);
        for (step, variant) in steps.iter().zip(Variant::ALL) {
            let Step::Restore(restore) = step else { panic!("{step}") };
            let declared = "*mangle\n-A OUTPUT -j DROP\nCOMMIT\n*nat\n:INPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
                :ISTIO_OUTPUT - [0:0]\nCOMMIT\n";
            assert_eq!(restore.text, if variant == Variant::Nft { declared } else { text });
        }
    }
}
