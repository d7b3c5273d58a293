//! What holds when one configuration replaces another, beside foreign rules.

use istio_iptables::config::CaptureConfig;
use istio_iptables::model::{Families, Family, FamilyRules, Hook, Table, TableHandles, Variant};
use istio_iptables::parse::{Line, Observed, ObservedTable};
use istio_iptables::reconcile::{self, Change};
use istio_iptables::record::Record;
use istio_iptables::{parse, policy, render};
use proptest::prelude::*;

use super::configs::{self, config};
use super::tables::Tables;

/// Foreign rules: before ours, and inserted between ours later; some are identical to ours.
pub(crate) const FOREIGN: &str = "*raw\n-A PREROUTING -p udp -j NOTRACK\nCOMMIT\n\
*mangle\n-A PREROUTING -i eth1 -j RETURN\n-A OUTPUT -p tcp -m connmark --mark 9 -j CONNMARK --restore-mark\nCOMMIT\n\
*nat\n:DOCKER - [0:0]\n-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-A PREROUTING -i eth1 -j RETURN\n\
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER\n-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE\n\
-A DOCKER -p tcp --dport 80 -j DNAT --to-destination 10.9.9.9:80\nCOMMIT\n";
const LATER: &str = "*nat\n-I PREROUTING -m comment --comment \"foreign, first\" -j ACCEPT\n\
-A OUTPUT -m comment --comment last -j ACCEPT\nCOMMIT\n";

/// Foreign rules around our mark rules, one of them their exact rule.
const AROUND_MARKS: &str = "*mangle\n-A PREROUTING -p udp -j ACCEPT\n\
-I PREROUTING -p tcp -m mark --mark 1337 -j CONNMARK --save-mark\n\
-A OUTPUT -m comment --comment last -j ACCEPT\nCOMMIT\n";

pub(crate) fn rules(config: &CaptureConfig, family: Family) -> FamilyRules {
    policy::ruleset(config).resolve(family)
}

/// A namespace: its tables, and what our last run recorded there.
#[derive(Clone, Default)]
pub(crate) struct Pod {
    pub(crate) tables: Tables,
    pub(crate) record: Option<Record>,
    /// Whether rules have handles, as in iptables-nft.
    pub(crate) numbered: bool,
}

impl Pod {
    fn observed(&self, family: Family) -> Observed {
        let mut observed = parse::iptables_save(family, &self.tables.save());
        observed.record.clone_from(&self.record);
        for table in Table::ALL.into_iter().filter(|_| self.numbered) {
            let rules = self.tables.handles(table.name());
            observed.number(table, &TableHandles { table: 1, rules, ..TableHandles::default() });
        }
        observed
    }

    pub(crate) fn change(&self, wanted: &FamilyRules) -> Change {
        Change::between(wanted, &self.observed(wanted.family), false)
    }

    /// What a run does, up to and including the given number of tables.
    fn run(&mut self, wanted: &FamilyRules, tables: usize) {
        let observed = self.observed(wanted.family);
        let change = Change::between(wanted, &observed, false);
        let by_handle: Vec<_> = change
            .tables
            .iter()
            .flat_map(|table| {
                table.by_handle.iter().map(|rule| (table.table.name(), rule.hook.name(), rule.handle))
            })
            .collect();
        let text = render::restore(&change);
        let variant = if self.numbered { Variant::Nft } else { Variant::Legacy };
        let found = reconcile::found(variant, &observed);
        let wanted = Record::of([wanted], &[change], false, variant).with_places_of(&found);
        let live = self.record.take().unwrap_or_default();
        self.record = Some(wanted.taking_over(&live, &found, None));
        if self.tables.restore_tables(&text, tables) {
            // After the rest of their tables, as a plan has it.
            for (table, hook, handle) in by_handle {
                self.tables.delete(table, hook, handle);
            }
            self.record = Some(wanted);
        }
    }

    pub(crate) fn converge(&mut self, wanted: &FamilyRules) {
        self.run(wanted, usize::MAX);
    }
}

/// An excluded interface that is a virtual one as well, beside a foreign rule for it, without handles.
#[test]
fn rule_of_earlier_options_like_one_of_the_present_ones_is_named() {
    let interfaces = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
    let with = |excluded: &[&str], virtual_ones: &[&str]| {
        let mut config = configs::plain();
        config.traffic.excluded_interfaces = interfaces(excluded);
        config.traffic.virtual_interfaces = interfaces(virtual_ones);
        rules(&config, Family::V4)
    };
    let both = with(&["eth1"], &["docker0", "eth1"]);
    for new in [with(&[], &["docker0", "eth1"]), with(&["eth1"], &[])] {
        let mut pod = Pod::default();
        pod.tables.restore(FOREIGN);
        pod.converge(&both);
        pod.tables.restore(LATER);
        let named = |pod: &Pod, wanted: &FamilyRules| -> Vec<String> {
            pod.change(wanted).ambiguous.iter().map(ToString::to_string).collect()
        };
        assert_eq!(named(&pod, &both), [""; 0], "a foreign rule is not named while all of ours are wanted");
        let rule = "nat PREROUTING -i eth1 -j RETURN".to_owned();
        assert!(named(&pod, &new).contains(&rule), "{:?}", pod.tables.contents());
    }
}

fn both_families() -> impl Strategy<Value = Family> {
    prop::sample::select(Family::ALL.to_vec())
}

proptest! {
    #[test]
    fn second_run_plans_no_step(config in config(), family in both_families()) {
        let wanted = rules(&config, family);
        let mut pod = Pod::default();
        pod.tables.restore(FOREIGN);
        pod.converge(&wanted);
        prop_assert_eq!(render::restore(&pod.change(&wanted)), "");
        pod.tables.restore(LATER);
        prop_assert_eq!(render::restore(&pod.change(&wanted)), "");
    }

    /// Istio's own binary records nothing.
    #[test]
    fn rules_without_a_record_are_right_as_they_are(config in config(), family in both_families()) {
        let wanted = rules(&config, family);
        let mut pod = Pod::default();
        pod.tables.restore(&render::fresh(&wanted));
        prop_assert_eq!(render::restore(&pod.change(&wanted)), "");
    }

    #[test]
    fn new_options_leave_what_a_fresh_namespace_would_hold(
        old in config(), new in config(), family in both_families()
    ) {
        let (old, new) = (rules(&old, family), rules(&new, family));
        let (mut fresh, mut pod) = (Pod::default(), Pod::default());
        fresh.converge(&new);
        pod.converge(&old);
        pod.converge(&new);
        prop_assert_eq!(pod.tables.contents(), fresh.tables.contents());
        prop_assert!(pod.change(&new).is_empty());
    }

    #[test]
    fn foreign_rule_behind_our_jump_keeps_its_position(
        old in config(), new in config(), family in both_families()
    ) {
        let both = |config| CaptureConfig { families: Families::Both, ..config };
        let (old, new) = (rules(&both(old), family), rules(&both(new), family));
        let mut pod = Pod::default();
        pod.tables.restore(FOREIGN);
        pod.converge(&old);
        pod.tables.restore(LATER);
        pod.converge(&new);
        let output = &pod.tables.contents()[&("nat".to_owned(), "OUTPUT".to_owned())];
        let place = |words: &str| output.iter().position(|rule| rule.contains(words));
        let (before, ours, behind) = (place("-j DOCKER"), place("-j ISTIO_OUTPUT"), place("--comment last"));
        prop_assert!(before < ours && ours < behind, "{:?}", output);
    }

    #[test]
    fn foreign_rules_are_unchanged_after_cleanup(
        old in config(), new in config(), family in both_families(), numbered in any::<bool>()
    ) {
        let mut others = Tables::default();
        others.restore(FOREIGN);
        let mut pod = Pod { tables: others.clone(), numbered, record: None };
        let (old, new) = (rules(&old, family), rules(&new, family));
        pod.converge(&old);
        others.restore(LATER);
        pod.tables.restore(LATER);
        let mut ambiguous = Vec::new();
        for wanted in [&new, &FamilyRules::none(family)] {
            ambiguous.extend(pod.change(wanted).ambiguous);
            pod.converge(wanted);
        }
        if ambiguous.is_empty() {
            prop_assert_eq!(pod.tables.contents(), others.contents());
        }
    }

    #[test]
    fn a_run_that_was_killed_between_two_tables_is_completed_by_the_next(
        old in config(), new in config(), family in both_families(), tables_done in 0usize..3
    ) {
        let (old, new) = (rules(&old, family), rules(&new, family));
        let (mut fresh, mut pod) = (Pod::default(), Pod::default());
        fresh.converge(&new);
        pod.converge(&old);
        pod.run(&new, tables_done);
        pod.converge(&new);
        prop_assert_eq!(pod.tables.contents(), fresh.tables.contents());
    }

    #[test]
    fn the_projection_of_a_change_is_what_the_kernel_holds_after_it(
        old in config(), new in config(), family in both_families(), limited in any::<bool>()
    ) {
        let mut pod = Pod::default();
        pod.tables.restore(FOREIGN);
        pod.converge(&rules(&old, family));
        pod.tables.restore(AROUND_MARKS);
        let before = pod.observed(family);
        let change = match limited {
            true => Change::limiting_save_mark(&before),
            false => pod.change(&rules(&new, family)),
        };
        pod.tables.restore(&render::restore(&change));
        let (projected, after) = (change.project(&before), pod.observed(family));
        let says = |lines: &[Line]| -> Vec<_> {
            lines.iter().map(|line| (line.text().into_owned(), line.statement.clone(), line.jump)).collect()
        };
        for table in Table::ALL {
            let (projected, after) = (projected.tables.get(&table), after.tables.get(&table));
            let chains = |observed: Option<&ObservedTable>| -> Vec<_> {
                let chains = observed.map(|o| o.chains.clone()).unwrap_or_default();
                chains.into_iter().map(|(chain, lines)| (chain, says(&lines))).collect()
            };
            prop_assert_eq!(chains(projected), chains(after));
            for hook in Hook::ALL {
                let lines = |observed: Option<&ObservedTable>| observed.map(|o| says(o.hook(hook))).unwrap_or_default();
                prop_assert_eq!(lines(projected), lines(after));
            }
        }
    }
}
