//! What holds when one configuration takes over from another, beside rules of others.

use istio_iptables::config::CaptureConfig;
use istio_iptables::diff::Change;
use istio_iptables::model::{Families, Family, FamilyRules, Hook, Table, Target};
use istio_iptables::parse::ObservedTable;
use istio_iptables::{parse, policy, render};
use proptest::prelude::*;

use super::configs::config;
use super::tables::Tables;

/// Rules of others: before ours, and put in between later; some have the very shape of ours.
pub(crate) const FOREIGN: &str = "*raw\n-A PREROUTING -p udp -j NOTRACK\nCOMMIT\n\
*mangle\n-A PREROUTING -i eth1 -j RETURN\n-A OUTPUT -p tcp -m connmark --mark 9 -j CONNMARK --restore-mark\nCOMMIT\n\
*nat\n:DOCKER - [0:0]\n-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-A PREROUTING -i eth1 -j RETURN\n\
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER\n-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE\n\
-A DOCKER -p tcp --dport 80 -j DNAT --to-destination 10.9.9.9:80\nCOMMIT\n";
const LATER: &str = "*nat\n-I PREROUTING -m comment --comment \"somebody's, first\" -j ACCEPT\n\
-A OUTPUT -m comment --comment last -j ACCEPT\nCOMMIT\n";

/// Foreign rules around our mark rules, one of them their exact twin.
const AROUND_MARKS: &str = "*mangle\n-A PREROUTING -p udp -j ACCEPT\n\
-I PREROUTING -p tcp -m mark --mark 1337 -j CONNMARK --save-mark\n\
-A OUTPUT -m comment --comment last -j ACCEPT\nCOMMIT\n";

fn rules(config: &CaptureConfig, family: Family) -> FamilyRules {
    policy::ruleset(config).resolve(family)
}

fn change(wanted: &FamilyRules, tables: &Tables) -> Change {
    Change::between(wanted, &parse::iptables_save(wanted.family, &tables.save()), false)
}

fn converge(wanted: &FamilyRules, tables: &mut Tables) {
    tables.restore(&render::restore(&change(wanted, tables)));
}

/// A lone `-i IF -j RETURN` is known as ours only while it is at the head of the chain.
fn unrecognisable(rules: &FamilyRules) -> bool {
    let hooks = rules.tables.get(&Table::Nat).and_then(|nat| nat.hooks.get(&Hook::Prerouting));
    let head = hooks.map_or(&[][..], |hooks| &hooks.head);
    !head.is_empty() && head.iter().all(|rule| rule.statement.target == Target::Return)
}

fn both_families() -> impl Strategy<Value = Family> {
    prop::sample::select(Family::ALL.to_vec())
}

proptest! {
    #[test]
    fn second_run_plans_no_step(config in config(), family in both_families()) {
        let wanted = rules(&config, family);
        let mut tables = Tables::default();
        tables.restore(FOREIGN);
        tables.restore(&render::fresh(&wanted));
        prop_assert_eq!(render::restore(&change(&wanted, &tables)), "");
        if !unrecognisable(&wanted) {
            tables.restore(LATER);
            prop_assert_eq!(render::restore(&change(&wanted, &tables)), "");
        }
    }

    #[test]
    fn new_options_leave_what_a_fresh_namespace_would_hold(
        old in config(), new in config(), family in both_families()
    ) {
        let (old, new) = (rules(&old, family), rules(&new, family));
        let mut fresh = Tables::default();
        fresh.restore(&render::fresh(&new));
        let mut tables = Tables::default();
        tables.restore(&render::fresh(&old));
        converge(&new, &mut tables);
        prop_assert_eq!(tables.contents(), fresh.contents());
        prop_assert!(change(&new, &tables).is_empty());
    }

    #[test]
    fn foreign_rule_behind_our_jump_keeps_its_position(
        old in config(), new in config(), family in both_families()
    ) {
        let both = |config| CaptureConfig { families: Families::Both, ..config };
        let (old, new) = (rules(&both(old), family), rules(&both(new), family));
        let mut tables = Tables::default();
        tables.restore(FOREIGN);
        tables.restore(&render::fresh(&old));
        tables.restore(LATER);
        converge(&new, &mut tables);
        let output = &tables.contents()[&("nat".to_owned(), "OUTPUT".to_owned())];
        let place = |words: &str| output.iter().position(|rule| rule.contains(words));
        let (before, ours, behind) = (place("-j DOCKER"), place("-j ISTIO_OUTPUT"), place("--comment last"));
        prop_assert!(before < ours && ours < behind, "{:?}", output);
    }

    #[test]
    fn cleanup_does_not_change_foreign_rules(
        old in config(), new in config(), family in both_families()
    ) {
        let mut others = Tables::default();
        others.restore(FOREIGN);
        let mut tables = others.clone();
        let (old, new) = (rules(&old, family), rules(&new, family));
        tables.restore(&render::fresh(&old));
        if !unrecognisable(&old) && !unrecognisable(&new) {
            others.restore(LATER);
            tables.restore(LATER);
            converge(&new, &mut tables);
        }
        converge(&FamilyRules::none(family), &mut tables);
        prop_assert_eq!(tables.contents(), others.contents());
    }

    #[test]
    fn a_run_that_was_killed_between_two_tables_is_completed_by_the_next(
        old in config(), new in config(), family in both_families(), tables_done in 0usize..3
    ) {
        let (old, new) = (rules(&old, family), rules(&new, family));
        let mut fresh = Tables::default();
        fresh.restore(&render::fresh(&new));
        let mut tables = Tables::default();
        tables.restore(&render::fresh(&old));
        let text = render::restore(&change(&new, &tables));
        tables.restore_tables(&text, tables_done);
        converge(&new, &mut tables);
        prop_assert_eq!(tables.contents(), fresh.contents());
    }

    #[test]
    fn the_projection_of_a_change_is_what_the_kernel_holds_after_it(
        old in config(), new in config(), family in both_families(), limited in any::<bool>()
    ) {
        let mut tables = Tables::default();
        tables.restore(FOREIGN);
        tables.restore(&render::fresh(&rules(&old, family)));
        tables.restore(AROUND_MARKS);
        let read = |tables: &Tables| parse::iptables_save(family, &tables.save());
        let before = read(&tables);
        let change = match limited {
            true => Change::limiting_save_mark(&before),
            false => change(&rules(&new, family), &tables),
        };
        tables.restore(&render::restore(&change));
        let (projected, after) = (change.project(&before), read(&tables));
        for table in Table::ALL {
            let (projected, after) = (projected.tables.get(&table), after.tables.get(&table));
            let chains = |observed: Option<&ObservedTable>| observed.map(|o| o.chains.clone()).unwrap_or_default();
            prop_assert_eq!(chains(projected), chains(after));
            for hook in Hook::ALL {
                let lines = |observed: Option<&ObservedTable>| observed.map(|o| o.hook(hook).to_vec()).unwrap_or_default();
                prop_assert_eq!(lines(projected), lines(after));
            }
        }
    }
}
