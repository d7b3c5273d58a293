//! Several runs that are killed one after the other, and foreign rules that are added meanwhile.

use crate::foreign_preserved::insert;
use crate::lab::kill::When;
use crate::lab::program::tool;
use crate::lab::tools::KillingTools;
use crate::lab::{Family, Fixture, Pod, for_each_backend, for_these_fixtures};
use nfnetlink::nftables::{Batch, Client, Family as NftFamily, TableName};

for_each_backend!(
    two_killed_changes_leave_no_earlier_exclusion,
    foreign_save_rules_survive_a_killed_run,
    limited_save_rule_of_another_program_survives,
    foreign_pair_added_after_a_killed_first_run_survives,
);
for_these_fixtures!(
    nft_only: IptablesNft Dual;
    [
        handle_in_a_table_that_was_made_again_is_foreign,
        rules_of_a_killed_run_before_a_new_base_chain_are_deleted,
        shifted_rules_of_two_killed_changes_are_deleted,
        foreign_passthrough_address_survives_a_killed_move,
    ]
);

/// All TCP in both directions, and these options.
fn everything<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["-b", "*", "-i", "*"], more].concat()
}

#[track_caller]
fn killed(pod: &Pod, args: &[&str], call: usize, when: When) {
    let tools = KillingTools::at_call(call, when);
    pod.istio_iptables(args).env("PATH", &tools.path()).run().ended_with(-1);
}

fn cleanup(pod: &Pod) {
    pod.plain_istio_iptables(&["--cleanup-only"]).run().succeeded();
}

/// The rules of both families, with counters.
fn rules(pod: &Pod, family: Family) -> Vec<String> {
    let save = pod.fixture.backend.tool(family, "-save");
    let saved = pod.namespace.run(|| tool(&save, &["-c"], ""));
    saved.lines().filter(|line| line.starts_with('[')).map(str::to_owned).collect()
}

/// Run 2 leaves its rules, run 3 nothing but its record.
fn two_killed_changes_leave_no_earlier_exclusion(fixture: Fixture) {
    let fresh = fixture.pod();
    fresh.apply(&everything(&["-c", "net2"]));
    for mode in ["REDIRECT", "TPROXY"] {
        for call in [1, 2] {
            let pod = fixture.pod();
            pod.apply(&everything(&["-m", mode, "-c", "net2,net3"]));
            killed(&pod, &everything(&["-m", mode, "-c", "net1,net2"]), call, When::After);
            killed(&pod, &everything(&["-c", "net2"]), 1, When::Before);
            pod.apply(&everything(&["-c", "net2", "--verify"]));
            assert_eq!(pod.state(), fresh.state(), "{mode}, call {call}");
            cleanup(&pod);
            assert!(pod.state().is_empty(), "{mode}, call {call}: {:?}", pod.state());
        }
    }
}

/// Rules behind foreign ones that are inserted after each kill: only handles tell then.
fn shifted_rules_of_two_killed_changes_are_deleted(fixture: Fixture) {
    let pod = fixture.pod();
    let before = pod.state();
    pod.apply(&everything(&["-c", "net2,net3"]));
    for (args, call, when) in [("net1,net2", 2, When::After), ("net2", 1, When::Before)] {
        killed(&pod, &everything(&["-c", args]), call, when);
        insert(&pod, "-t nat -I PREROUTING -i net2 -j RETURN");
        insert(&pod, "-t nat -I OUTPUT -o net1 -j RETURN");
    }
    pod.apply(&everything(&["-c", "net2", "--verify"]));
    cleanup(&pod);
    for (chain, rule) in [("PREROUTING", "-i net2 -j RETURN"), ("OUTPUT", "-o net1 -j RETURN")] {
        for _ in 0..2 {
            insert(&pod, &format!("-t nat -D {chain} {rule}"));
        }
    }
    assert_eq!(pod.state(), before);
}

const SAVES: [&str; 2] = ["-p tcp -m mark --mark 1337", "-i lo -p tcp -m mark --mark 1337"];

/// Foreign rules that do what our save rules do, with a counter that tells them from ours.
fn insert_saves(pod: &Pod, at: &str) {
    for (number, save) in SAVES.iter().enumerate() {
        insert(
            pod,
            &format!("-t mangle {at} PREROUTING {save} -j CONNMARK --save-mark -c {} 777", number + 7),
        );
    }
}

#[track_caller]
fn saves_are_left(pod: &Pod, what: &str) {
    for family in [Family::V4, Family::V6] {
        let rules = rules(pod, family);
        // `ip6tables-nft` ignores `-c`.
        let counted = |line: &&String| line.contains(":777] ") || family == Family::V6;
        let saves = rules.iter().filter(counted).filter(|line| line.contains("--save-mark"));
        assert_eq!(saves.count(), SAVES.len(), "{what} {family:?}: {rules:#?}");
    }
}

fn foreign_save_rules_survive_a_killed_run(fixture: Fixture) {
    for at in ["-A", "-I"] {
        let pod = fixture.pod();
        pod.apply(&everything(&["-m", "TPROXY"]));
        killed(&pod, &["--cleanup-only"], 2, When::After);
        insert_saves(&pod, at);
        cleanup(&pod);
        saves_are_left(&pod, at);
    }
}

fn limited_save_rule_of_another_program_survives(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&everything(&["-m", "TPROXY"]));
    let limited = "PREROUTING -i lo -p tcp -m mark --mark 1337 -j CONNMARK --save-mark -c 7 777";
    insert(&pod, &format!("-t mangle -A {limited}"));
    pod.apply(&["-b", "80", "-i", "*", "-m", "TPROXY", "-c", "net9"]);
    cleanup(&pod);
    for family in [Family::V4, Family::V6] {
        let left = rules(&pod, family);
        assert!(left.len() == 1 && left[0].contains("-i lo -p tcp"), "{family:?}: {left:?}");
    }
}

/// The first run has written one family only when it is killed, the second one both.
fn foreign_pair_added_after_a_killed_first_run_survives(fixture: Fixture) {
    let pod = fixture.pod();
    killed(&pod, &everything(&["-c", "net9"]), 2, When::Before);
    insert(&pod, "-t nat -A PREROUTING -i net9 -j RETURN -c 7 777");
    insert(&pod, "-t nat -A OUTPUT -o net9 -j RETURN -c 7 777");
    killed(&pod, &["-b", "80", "-i", "*", "-c", "net9"], 2, When::After);
    cleanup(&pod);
    for family in [Family::V4, Family::V6] {
        let left = rules(&pod, family);
        assert!(left.len() >= 2 && left.iter().all(|line| line.contains("net9")), "{family:?}: {left:?}");
        if family == Family::V4 {
            assert_eq!(left.iter().filter(|line| line.contains(":777]")).count(), 2, "{left:?}");
        }
    }
}

/// Rule handles restart in a new table, so a foreign rule can have the handle that a killed run recorded.
fn handle_in_a_table_that_was_made_again_is_foreign(fixture: Fixture) {
    const RULES: usize = 40;
    let pod = fixture.pod();
    pod.apply(&everything(&["-c", "net9"]));
    insert(&pod, "-t nat -I PREROUTING -i net9 -j RETURN");
    killed(&pod, &["--cleanup-only"], 2, When::After);
    pod.namespace.run(|| {
        let mut batch = Batch::new();
        [NftFamily::Ip, NftFamily::Ip6].iter().for_each(|of| batch.delete_table(&TableName::new(*of, "nat")));
        Client::open().expect("nf_tables").commit(&batch).expect("delete the tables");
    });
    let many = "-A PREROUTING -i net9 -j RETURN\n".repeat(RULES);
    for family in [Family::V4, Family::V6] {
        pod.restore(family, &format!("*nat\n{many}COMMIT\n"));
    }
    cleanup(&pod);
    for family in [Family::V4, Family::V6] {
        assert_eq!(rules(&pod, family).len(), RULES, "{family:?}");
    }
}

/// The tool makes the chain OUTPUT after our rules in PREROUTING, and the chain takes the number in between.
fn rules_of_a_killed_run_before_a_new_base_chain_are_deleted(fixture: Fixture) {
    let pod = fixture.pod();
    killed(&pod, &["-i", "*", "-b", "", "-m", "TPROXY", "-c", "net9"], 2, When::After);
    for rule in ["-t mangle -A PREROUTING -i net9 -j RETURN", "-t nat -I PREROUTING -i net9 -j RETURN"] {
        insert(&pod, &format!("{rule} -c 7 777"));
    }
    cleanup(&pod);
    for family in [Family::V4, Family::V6] {
        let left = rules(&pod, family);
        let counted = |line: &&String| line.contains("[7:777]") || family == Family::V6;
        assert_eq!((left.len(), left.iter().filter(counted).count()), (2, 2), "{family:?}: {left:?}");
    }
}

/// The record of a run without rules that only it names: the tables that the run before wrote into are ours
/// all the same.
fn foreign_passthrough_address_survives_a_killed_move(fixture: Fixture) {
    const DUAL: [&str; 4] = ["-b", "*", "--ip-family", "dual"];
    for number in 1.. {
        let pod = fixture.pod();
        pod.namespace.ip("address add ::6/128 dev lo nodad");
        pod.apply(&["-b", "*"]);
        let moved = pod.plain_istio_iptables(&DUAL).arg("--backend").arg("nftables");
        let is_killed = moved.run_and_kill_at_send(number, When::Before).code() == -1;
        pod.apply(&["-b", "*"]);
        pod.plain_istio_iptables(&["-b", "*", "--ip-family", "ipv4"]).run().succeeded();
        cleanup(&pod);
        let addresses = pod.namespace.run(|| tool("ip", &["-6", "-o", "address", "show", "dev", "lo"], ""));
        assert!(addresses.contains("::6/128"), "killed at message {number}: {addresses}");
        if !is_killed {
            break;
        }
    }
}
