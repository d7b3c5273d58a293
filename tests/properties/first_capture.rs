//! What holds when a pod with open connections is captured for the first time, stopped anywhere.

use std::collections::{BTreeMap, BTreeSet};

use istio_iptables::config::CaptureConfig;
use istio_iptables::connections::conntrack;
use istio_iptables::connections::{self, Connections, Exemption, Translated};
use istio_iptables::model::{Family, FamilyRules, Variant};
use istio_iptables::parse::Observed;
use istio_iptables::plan::{CurrentState, DesiredState, Step, plan};
use istio_iptables::{parse, policy, render, routing};
use proptest::prelude::*;

use super::configs::config;
use super::convergence::FOREIGN;
use super::tables::Tables;

const VARIANT: Variant = Variant::Nft;
/// What a chain of ours begins with while TCP is exempt.
const EXEMPTION: &str = "-p tcp -j RETURN";
/// What a chain of ours begins with while entries are corrected, unless the chain drops.
const SEGMENTS: &str = "-p tcp ! --syn -j RETURN";

fn desired(config: &CaptureConfig) -> DesiredState {
    // No record is kept here, and without one a RETURN beside an identical foreign one may stay.
    let mut known = config.clone();
    known.traffic.virtual_interfaces.clear();
    known.traffic.excluded_interfaces.clear();
    let rules = Family::ALL.into_iter().map(|family| (family, policy::ruleset(&known).resolve(family)));
    DesiredState {
        rules: rules.collect(),
        network: routing::Desired::default(),
        rewrite: false,
        config: None,
    }
}

/// The tables of both families.
type Namespace = BTreeMap<Family, Tables>;

fn empty() -> Namespace {
    Family::ALL.into_iter().map(|family| (family, Tables::default())).collect()
}

fn foreign() -> Namespace {
    let mut namespace = empty();
    namespace.values_mut().for_each(|tables| tables.restore(FOREIGN));
    namespace
}

fn current(namespace: &Namespace, untracked: &BTreeSet<Family>) -> CurrentState {
    let observed = |(family, tables): (&Family, &Tables)| {
        ((VARIANT, *family), parse::iptables_save(*family, &tables.save()))
    };
    let rules: BTreeMap<_, Observed> = namespace.iter().map(observed).filter(|(_, o)| o.has_ours()).collect();
    let connections = Connections { untracked: untracked.clone(), ..Connections::default() };
    CurrentState { rules, connections, ..CurrentState::empty(VARIANT.into()) }
}

/// Carries out the steps up to a commit; `seen` gets the number of commits before and the state after each
/// step.
fn run(namespace: &mut Namespace, steps: &[Step], commits: usize, mut seen: impl FnMut(&Step, &Namespace)) {
    let mut left = commits;
    for step in steps {
        if let Step::Restore(restore) = step {
            let now = restore.change.tables.len().min(left);
            namespace.get_mut(&restore.family()).unwrap().restore_tables(&restore.text(), now);
            left -= now;
        }
        if left == 0 {
            return;
        }
        seen(step, namespace);
    }
}

/// What is in the tables; one that is empty is as none.
fn contents(namespace: &Namespace) -> Vec<BTreeMap<(String, String), Vec<String>>> {
    namespace.values().map(Tables::contents).collect()
}

/// The chains of ours that send connections to the proxy or drop packets of them, with their rules.
fn capturing(tables: &Tables) -> Vec<Vec<String>> {
    with_target(tables, &["-j REDIRECT", "-j TPROXY", "-j DROP"])
}

/// The chains of ours that send connections to the proxy, with their rules.
fn redirecting(tables: &Tables) -> Vec<Vec<String>> {
    with_target(tables, &["-j REDIRECT", "-j TPROXY"])
}

/// The chains of ours with a rule that has one of these targets.
fn with_target(tables: &Tables, targets: &[&str]) -> Vec<Vec<String>> {
    let has_target = |rule: &String| targets.iter().any(|target| rule.contains(target));
    let chains = tables.contents().into_iter().filter(|((_, chain), _)| chain.starts_with("ISTIO_"));
    chains.map(|(_, rules)| rules).filter(|rules| rules.iter().any(has_target)).collect()
}

/// Whether this is the last change of conntrack entries.
const fn corrects_entries(step: &Step) -> bool {
    matches!(step, Step::Conntrack(conntrack::Step::DeleteStale(..)))
}

proptest! {
    /// Before connections are tracked every chain that captures exempts them; before the last change of
    /// entries it exempts their segments, and the one that drops exempts all TCP; afterwards none does.
    #[test]
    fn connections_are_exempt_until_they_are_tracked(config in config()) {
        let desired = desired(&config);
        let untracked: BTreeSet<Family> = config.families.iter().collect();
        let mut namespace = foreign();
        let steps = plan(&desired, &current(&namespace, &untracked));
        prop_assert_eq!(steps.iter().filter(|step| matches!(step, Step::TrackConnections(_))).count(), 1);
        prop_assert_eq!(steps.iter().filter(|step| corrects_entries(step)).count(), 1);
        let (mut tracked, mut corrected) = (false, false);
        run(&mut namespace, &steps, usize::MAX, |step, now| {
            tracked |= matches!(step, Step::TrackConnections(_));
            for rules in now.values().filter(|_| !corrected).flat_map(capturing) {
                let drops = rules.iter().any(|rule| rule.contains("-j DROP"));
                let expected: &[&str] = if drops || !tracked { &[EXEMPTION] } else { &[EXEMPTION, SEGMENTS] };
                assert!(expected.contains(&rules[0].as_str()), "{rules:?}");
            }
            if corrects_entries(step) {
                corrected = true;
                for rules in now.values().flat_map(redirecting) {
                    assert_eq!(rules[0], SEGMENTS);
                }
            }
        });
        let mut fresh = foreign();
        for (family, tables) in &mut fresh {
            tables.restore(&render::fresh(desired.rules.get(family).unwrap()));
        }
        prop_assert_eq!(contents(&namespace), contents(&fresh));
    }

    /// The run after an interrupted one knows that it has to track connections, unless nothing captured yet,
    /// and ends where an uninterrupted one does.
    #[test]
    fn an_interrupted_first_capture_is_completed(config in config(), other in config(), commits in 0usize..8) {
        let untracked: BTreeSet<Family> = config.families.iter().collect();
        let mut namespace = empty();
        let steps = plan(&desired(&config), &current(&namespace, &untracked));
        let exempt = steps.iter().take_while(|step| !matches!(step, Step::TrackConnections(_)));
        let exempt: usize = exempt.map(|step| if let Step::Restore(r) = step { r.change.tables.len() } else { 0 }).sum();
        run(&mut namespace, &steps, commits, |_, _| {});
        let now = current(&namespace, &BTreeSet::new());
        if commits <= exempt {
            for ((_, family), observed) in &now.rules {
                let captures = !capturing(&namespace[family]).is_empty();
                prop_assert_eq!(Exemption::left(observed) != Exemption::None, captures);
            }
        }
        let again: BTreeSet<Family> = other.families.iter().collect();
        let steps = plan(&desired(&other), &current(&namespace, &again));
        run(&mut namespace, &steps, usize::MAX, |_, _| {});
        let mut fresh = empty();
        for (family, tables) in &mut fresh {
            tables.restore(&render::fresh(desired(&other).rules.get(family).unwrap()));
        }
        prop_assert_eq!(contents(&namespace), contents(&fresh));
    }

    /// A run that is killed before entries are correct captures already: the next one never stops that.
    #[test]
    fn what_captures_goes_on_while_entries_are_corrected(config in config()) {
        let untracked: BTreeSet<Family> = config.families.iter().collect();
        let mut namespace = foreign();
        let mut steps = plan(&desired(&config), &current(&namespace, &untracked));
        let corrected = steps.iter().position(corrects_entries).unwrap();
        steps.truncate(corrected);
        run(&mut namespace, &steps, usize::MAX, |_, _| {});
        let now = current(&namespace, &BTreeSet::new());
        for family in untracked {
            prop_assert_eq!(now.exemption(family), Exemption::Correction);
        }
        run(&mut namespace, &plan(&desired(&config), &now), usize::MAX, |_, now| {
            for rules in now.values().flat_map(redirecting) {
                assert_ne!(rules[0], EXEMPTION);
            }
        });
        let mut fresh = foreign();
        for (family, tables) in &mut fresh {
            tables.restore(&render::fresh(desired(&config).rules.get(family).unwrap()));
        }
        prop_assert_eq!(contents(&namespace), contents(&fresh));
    }

    /// What keeps translation up is ours: the next run, with whatever options, takes it out, and so does
    /// clean-up.
    #[test]
    fn rule_that_keeps_translation_is_removed_later(config in config(), next in config()) {
        let mut namespace = foreign();
        let open = Family::ALL.into_iter().map(|family| (family, Translated::Count(3))).collect();
        let connections = Connections { translated: open, ..Connections::default() };
        let none = BTreeSet::new();
        for desired in [desired(&config), DesiredState::empty().keeping_translation(&connections)] {
            let steps = plan(&desired, &current(&namespace, &none));
            run(&mut namespace, &steps, usize::MAX, |_, _| {});
            prop_assert!(plan(&desired, &current(&namespace, &none)).is_empty());
        }
        for (family, tables) in &namespace {
            let observed = parse::iptables_save(*family, &tables.save());
            prop_assert!(connections::keeps_translation(&observed) && !connections::captures(&observed));
            let mut expected = foreign()[family].clone();
            expected.restore(&render::fresh(&connections::keep_translation(*family)));
            prop_assert_eq!(tables.contents(), expected.contents());
        }
        for desired in [desired(&next), DesiredState::empty()] {
            let steps = plan(&desired, &current(&namespace, &none));
            run(&mut namespace, &steps, usize::MAX, |_, _| {});
        }
        prop_assert_eq!(contents(&namespace), contents(&foreign()));
    }

    #[test]
    fn exemption_rule_round_trips(config in config()) {
        for (family, exemption) in Family::ALL.into_iter().zip([Exemption::Capture, Exemption::Correction]) {
            let rules: FamilyRules = exemption.form(&policy::ruleset(&config).resolve(family));
            for rule in rules.tables.values().flat_map(|table| table.rules()) {
                let text = rule.statement.to_string();
                prop_assert_eq!(parse::statement(family, &text), Some(rule.statement.clone()));
            }
        }
    }
}

#[test]
fn other_tcp_flags_are_not_understood() {
    for text in [
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN,ACK -j RETURN",
        "-p tcp -m tcp --tcp-flags SYN SYN -j RETURN",
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK,PSH SYN -j RETURN",
        "-p udp --syn -j RETURN",
        "--syn -j RETURN",
        "-p tcp --syn --syn -j RETURN",
    ] {
        assert_eq!(parse::statement(Family::V4, text), None, "{text}");
    }
}
