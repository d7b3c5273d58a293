//! The scenarios of the gallery, compared by `diff`: the forms of each are equal for all packets.

use istio_iptables::config::Output;
use istio_iptables::diff::{self, Conclusion, Side};
use istio_iptables::explain::Rules;
use istio_iptables::model::{Family, Network};
use istio_iptables::nft;
use istio_iptables::parse;

use crate::scenario::{self, Made};

fn options(made: &Made) -> Side {
    Family::ALL.into_iter().fold(Side::new("options".to_owned()), |side, family| {
        let rules = made.rules.get(&family).map(Rules::from).unwrap_or_default();
        side.rules(family, &rules)
    })
}

/// What `ip(6)tables-save` prints of the rules files.
fn saved(made: &Made) -> Side {
    Family::ALL.into_iter().fold(Side::new("iptables-save".to_owned()), |side, family| {
        let file = made.rules_file(family).unwrap_or_default();
        let texts = diff::by_family(&file, family).expect("a rules file");
        side.saved(&parse::iptables_save(family, texts.get(&family).map_or("", String::as_str)))
    })
}

/// What is read back from the kernel over netlink.
fn read_back(made: &Made) -> Side {
    let tables = nft::tables(&made.rules).iter().map(nft::encode).collect();
    let live = nft::LiveTables::new(tables, Vec::new());
    Family::ALL.into_iter().fold(Side::new("netlink".to_owned()), |side, family| {
        side.rules(family, &Rules::native(&live, family))
    })
}

fn compared(sides: &[Side; 2]) -> (String, Conclusion) {
    let network = Network { addresses: Vec::new(), ipv6: true };
    diff::report(sides, &network, Output::Text)
}

#[test]
fn forms_of_a_scenario_are_equal_for_all_packets() {
    for scenario in scenario::all() {
        let made = scenario.make();
        for other in [saved(&made), read_back(&made)] {
            let (text, conclusion) = compared(&[options(&made), other.clone()]);
            assert_eq!(conclusion, Conclusion::Equal, "{} and {}: {text}", scenario.name, other.name);
            let (text, conclusion) = compared(&[other, options(&made)]);
            assert_eq!(conclusion, Conclusion::Equal, "{}: {text}", scenario.name);
        }
    }
}

#[test]
fn scenarios_with_other_options_differ() {
    let scenarios = scenario::all();
    let mut different = 0;
    for pair in scenarios.windows(2) {
        let [first, second] = pair else { continue };
        let sides = [options(&first.make()), options(&second.make())];
        let (text, conclusion) = compared(&sides);
        assert_ne!(conclusion, Conclusion::NotProved, "{} and {}: {text}", first.name, second.name);
        different += usize::from(conclusion == Conclusion::Different);
    }
    assert!(different > scenarios.len() / 2, "{different} pairs differ");
}
