//! Every file of the gallery is read by the real tools, in a namespace of its own, and reads back as what was
//! meant.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test starts programs, reads files and may fail"
)]

mod mutated;
mod mutated_tproxy;
#[path = "../gallery/mutation.rs"]
mod mutation;
mod native;
mod observer;
mod packets;
#[path = "../gallery/scenario.rs"]
mod scenario;
mod walk;

use std::fs;

use istio_iptables::apply::network;
use istio_iptables::model::{Family, FamilyRules, Variant};
use istio_iptables::reconcile::Change;
use istio_iptables::{parse, render, routing};

use netlab::in_new_namespace;
use netlab::process::{run, run_with_input};
use scenario::Scenario;

const fn tool(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::V4 => ("iptables", "iptables.rules"),
        Family::V6 => ("ip6tables", "ip6tables.rules"),
    }
}

/// Loads a file of the gallery and returns the difference to the intended rules.
fn left_to_do(scenario: &Scenario, rules: &FamilyRules, variant: Variant) -> String {
    let (name, file) = tool(rules.family);
    let word = variant.word();
    let path = scenario::root().join(&scenario.name).join(file);
    let text = fs::read_to_string(&path).expect("the file can be read");
    let saved = in_new_namespace(|| {
        run_with_input(&format!("{name}-{word}-restore"), &["--noflush", "--wait=30"], &text);
        run(&format!("{name}-{word}-save"), &[])
    });
    let observed = parse::iptables_save(rules.family, &saved);
    let live: usize = observed.tables.values().map(rule_count).sum();
    assert_eq!(live, rules.count(), "{}: rules in the kernel\n{saved}", path.display());
    render::restore(&Change::between(rules, &observed, false))
}

fn rule_count(table: &parse::ObservedTable) -> usize {
    table.chains.values().chain(table.hooks.values()).map(Vec::len).sum()
}

fn every_file_reads_back(variant: Variant) {
    let mut files = 0;
    for scenario in scenario::all() {
        let made = scenario.make();
        for rules in made.rules.values().filter(|rules| made.rules_file(rules.family).is_some()) {
            let change = left_to_do(&scenario, rules, variant);
            assert!(
                change.is_empty(),
                "{}: the {} rules of `{}` differ when read back from {variant} ({}); to correct them:\n{change}",
                scenario.name,
                rules.family,
                scenario.command(),
                made.log.join("; ")
            );
            files += 1;
        }
    }
    assert!(files >= 18, "{files} files");
}

#[test]
fn every_rules_file_round_trips_through_nft() {
    every_file_reads_back(Variant::Nft);
}

#[test]
fn every_rules_file_round_trips_through_legacy() {
    every_file_reads_back(Variant::Legacy);
}

/// The `ip` commands of the file do what the program would do: afterwards the program has nothing left to do.
#[test]
fn every_routing_file_leaves_the_program_nothing_to_do() {
    let mut files = 0;
    for scenario in scenario::all() {
        let made = scenario.make();
        let Some(commands) = made.commands() else { continue };
        let path = scenario::root().join(&scenario.name).join("routing.sh");
        // iproute2 knows `proto` for addresses since 6.3 only; the tag is not needed for what is looked at
        // here.
        let text = fs::read_to_string(&path).expect("the file can be read");
        let text = text.replace("/128 dev lo proto 150", "/128 dev lo");
        let observed = in_new_namespace(|| {
            run("sh", &["-e", "-c", &text]);
            network::observed().expect("routes can be read")
        });
        let left = routing::plan(&made.desired, &observed, &routing::Evidence::default());
        assert_eq!(left, routing::Steps::default(), "{} after\n{commands}", scenario.name);
        files += 1;
    }
    assert!(files >= 3, "{files} files");
}
