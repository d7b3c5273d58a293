//! Which of identical rules in shared chains are ours: sequences of runs, kills at exact steps and foreign
//! changes.
//!
//! `OWNERSHIP_SEED`, `OWNERSHIP_FROM` and `OWNERSHIP_SEQUENCES` choose which, from a number up to another
//! one; a failure prints its seed, number and steps.

mod backend_switch;
mod native;
mod shared;

use std::panic::{RefUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::chaos::random::Random;
use crate::lab::kill::When;
use crate::lab::tools::KillingTools;
use crate::lab::{Family, Fixture, for_each_backend};
use shared::{FAMILIES, Shared};

for_each_backend!(
    identical_foreign_rules_survive_runs_that_are_killed_and_ours_go,
    rules_of_a_killed_run_go_where_foreign_rules_changed_since,
    identical_foreign_rule_in_place_of_another_one_survives,
    foreign_rule_where_a_killed_run_was_to_write_one_survives,
    rules_that_a_killed_run_could_not_take_out_are_named,
    rules_that_a_killed_cleanup_has_passed_are_named,
);

/// Sequences in a test run without variables, if they fit into the time.
const SEQUENCES: u64 = 12;
const TIME: Duration = Duration::from_secs(20);

/// Rules that ours are identical to, by table and chain; `LO` is the loopback range.
const FORMS: [(&str, &str, &[&str]); 4] = [
    ("nat", "PREROUTING", &["-i net9 -j RETURN", "-i net8 -j RETURN", "-i net1 -j RETURN"]),
    ("nat", "OUTPUT", &["-o net9 -j RETURN", "-o net8 -j RETURN", "-o net1 -j RETURN"]),
    (
        "mangle",
        "PREROUTING",
        &[
            "-i net9 -j RETURN",
            "-i net8 -j RETURN",
            "-p tcp -m mark --mark 1337 -j CONNMARK --save-mark",
            "-i lo -p tcp -m mark --mark 1337 -j CONNMARK --save-mark",
        ],
    ),
    (
        "mangle",
        "OUTPUT",
        &[
            "-o net9 -j RETURN",
            "-o lo -p tcp -m mark --mark 1337 -j RETURN",
            "! -d LO -o lo -p tcp -m owner --uid-owner 1337 -j MARK --set-mark 1338",
            "-p tcp -m connmark --mark 1337 -j CONNMARK --restore-mark",
        ],
    ),
];

const OPTIONS: [&[&str]; 10] = [
    &["-i", "*", "-b", "*"],
    &["-i", "*", "-b", "*", "-c", "net9"],
    &["-i", "*", "-b", "80", "-c", "net8,net9"],
    &["-i", "*", "-b", "*", "-c", "net1,net8"],
    &["-i", "*", "-b", "*", "-c", "net9", "-k", "net1"],
    &["-i", "10.0.0.0/8", "-b", "80", "-k", "net9"],
    &["-i", "*", "-b", "*", "-m", "TPROXY"],
    &["-i", "*", "-b", "*", "-m", "TPROXY", "-c", "net9"],
    &["-i", "*", "-b", "80,81", "-m", "TPROXY", "-c", "net9,net8", "-k", "net1", "--drop-invalid"],
    &["-i", "*", "-b", "", "-m", "TPROXY", "-c", "net8"],
];

/// The chain is as long as recorded, and our recorded place holds the foreign rule: with iptables-legacy only
/// the words of all rules say that the chain has changed.
fn identical_foreign_rule_in_place_of_another_one_survives(fixture: Fixture) {
    const TWIN: &str = "-o net9 -j RETURN";
    let mut shared = Shared::new(fixture, "replaced".to_owned());
    let mut random = Random::new(1, 1);
    for (number, (family, ..)) in FAMILIES.into_iter().enumerate() {
        let place = (number, "nat", "OUTPUT");
        shared.pod.iptables(family, "-t nat -A OUTPUT -p tcp --dport 9 -j ACCEPT");
        shared.run(&mut random, &["-i", "*", "-b", "*", "-c", "net9"], false);
        let text = |shared: &Shared| -> Vec<String> {
            shared.live().remove(&place).unwrap().into_iter().map(|rule| rule.text).collect()
        };
        let before = text(&shared);
        assert_eq!(before.iter().position(|text| text == TWIN), Some(1), "{before:?}");
        shared.pod.iptables(family, "-t nat -D OUTPUT 1");
        shared.insert_at(place, TWIN, 1);
        assert_eq!(text(&shared).len(), before.len());
        shared.run(&mut random, &["--cleanup-only"], false);
        shared.check("replaced");
        let left = shared.left();
        let expected = if shared.is_nft() { vec![] } else { vec![(place, TWIN.to_owned())] };
        assert_eq!(left, expected, "{}", shared.steps.join("\n"));
        for ((_, table, chain), text) in left {
            assert!(shared.said.contains(&format!("`{table} {chain} {text}`")), "{}", shared.said);
        }
        shared.pod.iptables(family, "-t nat -F OUTPUT");
        shared.foreign.clear();
    }
}

/// The chain is as that run was to leave it. The table is not: the run would have written the other half of
/// the pair too.
fn foreign_rule_where_a_killed_run_was_to_write_one_survives(fixture: Fixture) {
    let mut shared = Shared::new(fixture, "half a pair".to_owned());
    let mut random = Random::new(1, 1);
    shared.run(&mut random, &["-i", "*", "-b", "*"], false);
    // Before the rules of IPv6.
    let tools = KillingTools::at_call(2, When::Before);
    let excluded = shared.pod.istio_iptables(&["-i", "*", "-b", "*", "-c", "net9"]);
    excluded.env("PATH", &tools.path()).run().ended_with(-1);
    shared.insert_at((1, "nat", "PREROUTING"), "-i net9 -j RETURN", 0);
    shared.run(&mut random, &["--cleanup-only"], false);
    shared.check("half a pair");
    assert_eq!(shared.left(), []);
}

/// The chain is not as that run left it. A whole set of rules that each are in one place only is no
/// coincidence.
fn rules_of_a_killed_run_go_where_foreign_rules_changed_since(fixture: Fixture) {
    let (family, ..) = FAMILIES[1];
    for call in 1..=5 {
        let mut shared = Shared::new(fixture, format!("killed after tool call {call}"));
        shared.pod.iptables(family, "-t mangle -A OUTPUT -p udp --dport 9 -j ACCEPT");
        let tools = KillingTools::at_call(call, When::After);
        let tproxy = shared.pod.istio_iptables(&["-i", "*", "-b", "*", "-m", "TPROXY"]);
        tproxy.env("PATH", &tools.path()).run();
        shared.pod.iptables(family, "-t mangle -D OUTPUT -p udp --dport 9 -j ACCEPT");
        shared.insert_at((1, "mangle", "OUTPUT"), "-p udp -m udp --dport 10 -j ACCEPT", 0);
        shared.run(&mut Random::new(1, 1), &["--cleanup-only"], false);
        shared.check(&shared.steps.join("\n"));
        assert_eq!(shared.left(), [], "killed after tool call {call}");
    }
}

/// Identical foreign rules are beside ours when the options change, so with iptables-legacy ours stay. The
/// change is killed after that, and the next run is the last one that knows of it: its options ask for one of
/// the identical rules.
fn rules_that_a_killed_run_could_not_take_out_are_named(fixture: Fixture) {
    let mut shared = Shared::new(fixture, "left".to_owned());
    let mut random = Random::new(1, 1);
    let (prerouting, output) = ((0, "mangle", "PREROUTING"), (0, "mangle", "OUTPUT"));
    shared.insert_at(prerouting, "-i net8 -j RETURN", 0);
    shared.run(&mut random, &["-i", "*", "-b", "", "-m", "TPROXY", "-c", "net8"], false);
    shared.insert_at(output, "-p tcp -m connmark --mark 1337 -j CONNMARK --restore-mark", 0);
    shared.insert_at(prerouting, "-p tcp -m mark --mark 1337 -j CONNMARK --save-mark", 0);
    let others = ["-i", "*", "-b", "*", "-m", "TPROXY", "-c", "net9"];
    let tools = KillingTools::at_call(2, When::Before);
    shared.pod.istio_iptables(&others).env("PATH", &tools.path()).run();
    for args in [&others[..], &["--cleanup-only"]] {
        shared.run(&mut random, args, false);
        shared.check(&shared.steps.join("\n"));
    }
    let left = shared.left();
    assert_eq!(left.is_empty(), shared.is_nft(), "{left:?}");
    shared.is_named(&left, &[&shared]);
}

/// Identical foreign rules are beside all of ours, and the clean-up is killed when it has taken out the
/// chains, so nothing but the record tells the next one of the rules that are left with iptables-legacy.
fn rules_that_a_killed_cleanup_has_passed_are_named(fixture: Fixture) {
    for call in 1..=2 {
        let mut shared = Shared::new(fixture, format!("passed, {call}"));
        let mut random = Random::new(1, 1);
        shared.run(&mut random, &["-i", "*", "-b", "*", "-c", "net9"], false);
        for number in 0..FAMILIES.len() {
            for (chain, form) in [("PREROUTING", "-i net9 -j RETURN"), ("OUTPUT", "-o net9 -j RETURN")] {
                shared.insert_at((number, "nat", chain), form, 0);
            }
        }
        let tools = KillingTools::at_call(call, When::After);
        shared.pod.istio_iptables(&["--cleanup-only"]).env("PATH", &tools.path()).run().ended_with(-1);
        shared.run(&mut random, &["--cleanup-only"], false);
        shared.check(&shared.steps.join("\n"));
        let left = shared.left();
        assert_eq!(left.len(), if shared.is_nft() { 0 } else { 4 }, "killed after restore {call}: {left:?}");
        shared.is_named(&left, &[&shared]);
    }
}

/// Returns how many of our rules are left and named.
fn sequence(fixture: Fixture, seed: u64, number: u64) -> usize {
    let mut random = Random::new(seed, number);
    let mut shared = Shared::new(fixture, format!("{seed} {number}"));
    for _ in 0..random.below(3) {
        shared.change(&mut random);
    }
    for _ in 0..=random.below(4) {
        let mut args =
            if random.chance(15) { vec!["--cleanup-only"] } else { random.pick(&OPTIONS).to_vec() };
        if args.len() > 1 && random.chance(20) {
            args.push("--verify");
        }
        let killed = random.chance(55);
        shared.run(&mut random, &args, killed);
        shared.check(&shared.steps.join("\n"));
        for _ in 0..random.below(3) {
            shared.change(&mut random);
        }
    }
    shared.run(&mut random, &["--cleanup-only"], false);
    shared.check(&shared.steps.join("\n"));
    let left = shared.left();
    shared.is_named(&left, &[&shared]);
    let state = shared.pod.save(Family::V4) + &shared.pod.save(Family::V6);
    assert!(!state.contains("ISTIO_"), "{}\n{state}", shared.steps.join("\n"));
    if !left.is_empty() {
        eprintln!("{}\nnamed: {left:?}", shared.steps.join("\n"));
    }
    left.len()
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn identical_foreign_rules_survive_runs_that_are_killed_and_ours_go(fixture: Fixture) {
    let named = sequences(|seed, number| sequence(fixture, seed, number));
    eprintln!("{named} rules of ours are left and named");
}

/// Runs the sequences that the variables ask for, and adds up what they return.
fn sequences(sequence: impl Fn(u64, u64) -> usize + RefUnwindSafe) -> usize {
    let seed = variable("OWNERSHIP_SEED").unwrap_or(1);
    let asked = variable("OWNERSHIP_SEQUENCES");
    let start = Instant::now();
    let (mut sum, mut failed, mut done) = (0, Vec::new(), 0);
    for number in variable("OWNERSHIP_FROM").unwrap_or(0)..asked.unwrap_or(SEQUENCES) {
        if asked.is_none() && start.elapsed() > TIME {
            break;
        }
        match catch_unwind(|| sequence(seed, number)) {
            Ok(found) => sum += found,
            Err(_) => failed.push(number),
        }
        done += 1;
    }
    eprintln!("OWNERSHIP_SEED={seed}: {done} sequences, failed: {failed:?}");
    assert!(failed.is_empty(), "OWNERSHIP_SEED={seed}: {failed:?}");
    sum
}
