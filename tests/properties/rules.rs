//! What holds for the rules of every configuration.

use std::collections::{BTreeMap, BTreeSet};

use istio_iptables::config::Tproxy;
use istio_iptables::model::{
    Chain, Family, FamilyRules, Hook, Match, Owner, Statement, Table, TableRules, Target,
};
use istio_iptables::plan::DesiredState;
use istio_iptables::{parse, policy, render, routing};
use proptest::prelude::*;

use super::configs::config;

/// The chains that can be reached from a hook.
fn reached(table: &TableRules, hook: Hook) -> BTreeSet<Chain> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<Chain> = table
        .hooks
        .get(&hook)
        .into_iter()
        .flat_map(|rules| rules.iter())
        .filter_map(|rule| rule.statement.target.jump())
        .collect();
    while let Some(chain) = open.pop() {
        if reached.insert(chain) {
            open.extend(table.chains[&chain].iter().filter_map(|rule| rule.statement.target.jump()));
        }
    }
    reached
}

/// The statements that a packet of a hook can meet.
fn met(table: &TableRules, hook: Hook) -> Vec<&Statement> {
    let chains = reached(table, hook);
    let hooks = table.hooks.get(&hook).into_iter().flat_map(|rules| rules.iter());
    hooks.chain(chains.iter().flat_map(|chain| &table.chains[chain])).map(|rule| &rule.statement).collect()
}

proptest! {
    #[test]
    fn digest_changes_with_any_rule_address_or_route(config in config(), at in any::<prop::sample::Index>()) {
        let rules = policy::ruleset(&config);
        let state = DesiredState {
            rules: Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect(),
            network: routing::Desired::of(&config),
            rewrite: false, config: None
        };
        prop_assert_eq!(DesiredState { rewrite: true, ..state.clone() }.digest(), state.digest());
        let differs = |change: &dyn Fn(&mut DesiredState)| {
            let mut other = state.clone();
            change(&mut other);
            other.digest() != state.digest()
        };
        prop_assert!(differs(&|other| other.network.passthrough ^= true));
        for (family, tproxy) in &state.network.tproxy {
            let moved = Tproxy { table: tproxy.table + 1, ..*tproxy };
            prop_assert!(differs(&|other| other.network.tproxy.extend([(*family, moved)])));
        }
        let count = |state: &DesiredState| state.rules.values().map(FamilyRules::count).sum::<usize>();
        let removed = |other: &mut DesiredState| {
            let all = other.rules.iter_mut().flat_map(|(_, rules)| rules.tables.values_mut());
            let mut chains: Vec<_> = all.flat_map(|table| table.chains.values_mut()).filter(|rules| !rules.is_empty()).collect();
            if !chains.is_empty() {
                let chain = at.index(chains.len());
                let rule = at.index(chains[chain].len());
                chains[chain].remove(rule);
            }
        };
        let mut other = state.clone();
        removed(&mut other);
        prop_assert!(count(&other) == count(&state) || differs(&removed));
    }

    #[test]
    fn every_rule_round_trips(config in config()) {
        let rules = policy::ruleset(&config);
        for family in Family::ALL {
            for table in rules.resolve(family).tables.values() {
                for rule in table.rules() {
                    let text = rule.statement.to_string();
                    prop_assert_eq!(parse::statement(family, &text), Some(rule.statement.clone()), "{}", text);
                }
            }
        }
    }

    #[test]
    fn a_family_that_is_off_has_no_rules(config in config()) {
        let rules = policy::ruleset(&config);
        for family in Family::ALL {
            let resolved = rules.resolve(family);
            prop_assert_eq!(resolved.count() > 0, config.families.contains(family));
        }
    }

    #[test]
    fn targets_are_only_in_tables_that_accept_them(config in config()) {
        let rules = policy::ruleset(&config);
        for (name, table) in Family::ALL.iter().flat_map(|family| rules.resolve(*family).tables) {
            for rule in table.rules() {
                let target = rule.statement.target;
                let only_in = match target {
                    Target::Redirect(_) => Some(Table::Nat),
                    Target::Tproxy { .. } => Some(Table::Mangle),
                    Target::ConntrackZone(_) => Some(Table::Raw),
                    _ => None,
                };
                prop_assert!(only_in.is_none_or(|table| table == name));
                prop_assert!(target.jump().is_none_or(|chain| table.chains.contains_key(&chain)));
            }
            for statement in met(&table, Hook::Prerouting) {
                prop_assert!(statement.matcher.owners.is_empty(), "no owner is known in PREROUTING");
                prop_assert!(statement.matcher.out_interface.is_none());
            }
            for statement in met(&table, Hook::Output) {
                let tproxy = matches!(statement.target, Target::Tproxy { .. });
                prop_assert!(!tproxy && statement.matcher.in_interface.is_none());
            }
        }
    }

    #[test]
    fn proxy_traffic_is_excluded_before_any_capture(config in config()) {
        let rules = policy::ruleset(&config);
        for family in config.families.iter() {
            let nat = &rules.resolve(family).tables[&Table::Nat];
            let output = &nat.chains[&Chain::Output];
            let owners = config.traffic.proxy.uids.iter().map(|uid| Owner::Uid(*uid));
            for owner in owners.chain(config.traffic.proxy.gids.iter().map(|gid| Owner::Gid(*gid))) {
                let leaves = output.iter().position(|rule| {
                    let matcher = &rule.statement.matcher;
                    rule.statement.target == Target::Return
                        && matcher.owners == [Match::Is(owner)]
                        && (&matcher.destination, &matcher.out_interface, &matcher.protocol) == (&None, &None, &None)
                });
                let captured = output.iter().position(|rule| {
                    matches!(rule.statement.target.jump(), Some(Chain::Redirect | Chain::OutputDns))
                });
                prop_assert!(leaves.is_some());
                prop_assert!(captured.is_none_or(|captured| leaves < Some(captured)));
            }
        }
    }

    #[test]
    fn the_file_is_a_transaction_per_table_and_declares_no_built_in_chain(config in config()) {
        let rules = policy::ruleset(&config);
        for family in config.families.iter() {
            let text = render::fresh(&rules.resolve(family));
            let mut chains: BTreeMap<&str, usize> = BTreeMap::new();
            for line in text.lines().filter(|line| line.starts_with(':')) {
                prop_assert!(line.starts_with(":ISTIO_"), "{}", line);
                *chains.entry(line).or_default() += 1;
            }
            let tables = text.lines().filter(|line| line.starts_with('*')).count();
            prop_assert_eq!(tables, text.lines().filter(|line| *line == "COMMIT").count());
        }
    }
}
