//! Foreign rules of every shape, before, between and behind ours, stay exactly as they are.

use std::collections::{BTreeMap, BTreeSet};

use istio_iptables::model::{Family, FamilyRules, Hook, Table};
use proptest::collection::vec;
use proptest::prelude::*;

use super::configs::config;
use super::convergence::{Pod, rules};

/// A foreign rule, and where another program puts it.
#[derive(Clone, Debug)]
struct Foreign {
    table: Table,
    hook: Hook,
    place: usize,
    rule: String,
}

fn foreign() -> impl Strategy<Value = Foreign> {
    let table = prop::sample::select(Table::ALL.to_vec());
    let hook = prop::sample::select(Hook::ALL.to_vec());
    // Mostly at either end, as most programs do.
    let place = prop_oneof![Just(0), Just(usize::MAX), 0usize..6];
    (table, hook, place, 0usize..14, prop::sample::select(vec!["eth1", "net+", "vnet0"]), any::<bool>()).prop_map(
        |(table, hook, place, shape, interface, other)| {
            let side = match hook {
                Hook::Prerouting => "-i",
                Hook::Output => "-o",
            };
            let mark = if other { "0x539" } else { "0x1" };
            let rule = match shape {
                0..=3 => format!("{side} {interface} -j RETURN"),
                4 => format!("{side} {interface} -m comment --comment \"keep: -i {interface}\" -j RETURN"),
                5 => format!("{side} {interface} -p tcp -j RETURN"),
                6 => format!("{side} {interface} -m socket -j RETURN"),
                7 => "-p tcp -m tcp --dport 22 -j ACCEPT".to_owned(),
                8 => format!("-p tcp -m mark --mark {mark} -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff"),
                9 => format!("-o lo -p tcp -m mark --mark {mark} -j RETURN"),
                10 => "! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 5 -j MARK --set-xmark 0x53a/0xffffffff".to_owned(),
                11 => format!("-p tcp -m connmark --mark {mark} -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff"),
                12 => "-p tcp -m comment --comment -j -j ISTIO_INBOUND".to_owned(),
                _ => "-p udp -m comment --comment \"a\n-A OUTPUT -j ISTIO_OUTPUT\" -j RETURN".to_owned(),
            };
            Foreign { table, hook, place, rule }
        },
    )
}

/// A pod in which another program adds rules, which are known by their handles here.
struct Shared {
    pod: Pod,
    foreign: BTreeSet<(Table, u64)>,
}

impl Shared {
    fn add(&mut self, rules: &[Foreign]) {
        for Foreign { table, hook, place, rule } in rules {
            // The jump, not the line of a comment that looks like one.
            let jump = rule
                .rsplit_once(" -j ")
                .map(|(_, target)| target)
                .filter(|_| rule.ends_with("ISTIO_INBOUND"));
            if jump.is_none_or(|chain| self.pod.tables.has(table.name(), chain)) {
                let handle = self.pod.tables.insert(table.name(), hook.name(), *place, rule);
                self.foreign.insert((*table, handle));
            }
        }
    }

    fn foreign(&self) -> BTreeMap<(Table, String), Vec<u64>> {
        let chains = Table::ALL.into_iter().flat_map(|table| {
            self.pod
                .tables
                .handles(table.name())
                .into_iter()
                .map(move |(chain, rules)| ((table, chain), rules))
        });
        let foreign = |table, rules: Vec<u64>| -> Vec<u64> {
            rules.into_iter().filter(|handle| self.foreign.contains(&(table, *handle))).collect()
        };
        chains
            .map(|((table, chain), rules)| ((table, chain), foreign(table, rules)))
            .filter(|(_, rules)| !rules.is_empty())
            .collect()
    }

    fn all(&self) -> usize {
        let rules =
            |table: Table| self.pod.tables.handles(table.name()).values().map(Vec::len).sum::<usize>();
        Table::ALL.into_iter().map(rules).sum()
    }
}

fn check(shared: &mut Shared, wanted: &FamilyRules) -> Result<Vec<String>, TestCaseError> {
    let before = shared.foreign();
    let ambiguous = shared.pod.change(wanted).ambiguous.iter().map(ToString::to_string).collect();
    shared.pod.converge(wanted);
    prop_assert_eq!(&shared.foreign(), &before, "foreign rules, by handle");
    prop_assert!(shared.pod.change(wanted).is_empty(), "one run is enough");
    Ok(ambiguous)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn every_run_leaves_every_foreign_rule(
        old in config(), new in config(), numbered in any::<bool>(),
        family in prop::sample::select(Family::ALL.to_vec()),
        before in vec(foreign(), 0..6), between in vec(vec(foreign(), 0..5), 3),
    ) {
        let (old, new) = (rules(&old, family), rules(&new, family));
        let mut shared = Shared { pod: Pod { numbered, ..Pod::default() }, foreign: BTreeSet::new() };
        shared.add(&before);
        let mut doubt = Vec::new();
        for (wanted, later) in [&old, &old, &new].into_iter().zip(&between) {
            doubt.extend(check(&mut shared, wanted)?);
            shared.add(later);
        }
        doubt.extend(check(&mut shared, &FamilyRules::none(family))?);
        if doubt.is_empty() {
            prop_assert_eq!(shared.all(), shared.foreign.len(), "nothing of ours is left");
        }
    }
}
