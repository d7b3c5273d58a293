//! `diff` over any configuration: its rules of iptables and of native nftables are equal for all packets, and
//! two configurations differ in both directions or in none.

use istio_iptables::config::{CaptureConfig, Output};
use istio_iptables::diff::{self, Conclusion, Side};
use istio_iptables::explain::Rules;
use istio_iptables::model::{Family, FamilyRules, Network, PerFamily};
use istio_iptables::{nft, policy};
use proptest::prelude::*;

use super::configs::config;

fn rules(config: &CaptureConfig) -> PerFamily<FamilyRules> {
    let rules = policy::ruleset(config);
    Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect()
}

fn iptables(rules: &PerFamily<FamilyRules>) -> Side {
    rules.iter().fold(Side::new("iptables".to_owned()), |side, (family, rules)| {
        side.rules(*family, &Rules::from(rules))
    })
}

fn native(rules: &PerFamily<FamilyRules>) -> Side {
    let live = nft::LiveTables::new(nft::tables(rules).iter().map(nft::encode).collect(), Vec::new());
    Family::ALL.into_iter().fold(Side::new("native".to_owned()), |side, family| {
        side.rules(family, &Rules::native(&live, family))
    })
}

fn compared(a: &Side, b: &Side) -> (String, Conclusion) {
    let network = Network { addresses: Vec::new(), ipv6: true };
    diff::report(&[a.clone(), b.clone()], &network, Output::Text)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 30, ..ProptestConfig::default() })]

    #[test]
    fn backends_are_equal_for_all_packets(config in config()) {
        let rules = rules(&config);
        let (text, conclusion) = compared(&iptables(&rules), &native(&rules));
        prop_assert_eq!(conclusion, Conclusion::Equal, "{}", text);
    }

    #[test]
    fn comparison_is_the_same_in_both_directions(one in config(), other in config()) {
        let (one, other) = (iptables(&rules(&one)), iptables(&rules(&other)));
        prop_assert_eq!(compared(&one, &one).1, Conclusion::Equal);
        let (text, conclusion) = compared(&one, &other);
        prop_assert_eq!(compared(&other, &one).1, conclusion, "{}", text);
    }
}
