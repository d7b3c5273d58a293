//! Rules of ours without our chains, which nothing distinguishes from foreign ones: they stay, and every run
//! names them.

use crate::lab::kill::When;
use crate::lab::program::tool;
use crate::lab::tools::KillingTools;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend, for_these_fixtures};

for_each_backend!(
    rule_of_earlier_options_like_one_of_the_present_ones_is_deleted_or_named,
    rule_whose_chains_were_deleted_is_named,
    what_a_first_run_may_not_have_written_is_not_named
);
for_these_fixtures!(legacy_only: IptablesLegacy Dual; [rule_that_a_finished_run_left_is_named_until_it_is_deleted]);

const EXCLUDED: [&str; 6] = ["-b", "*", "-i", "*", "-c", "net9"];
const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
const OTHERS: [&str; 4] = ["-b", "80", "-i", "*"];
const CLEANUP: [&str; 1] = ["--cleanup-only"];

/// Table, chain and words of each.
const OF_EXCLUDED: [(&str, &str, &str); 2] =
    [("nat", "PREROUTING", "-i net9 -j RETURN"), ("nat", "OUTPUT", "-o net9 -j RETURN")];
const OF_TPROXY: [(&str, &str, &str); 1] =
    [("mangle", "PREROUTING", "-p tcp -m mark --mark 0x539 -j CONNMARK --save-mark")];

/// The lines of a table as the tool saves them.
fn saved(pod: &Pod, family: Family, table: &str) -> Vec<String> {
    let saved = pod.save(family);
    let section = saved.split(&format!("*{table}\n")).nth(1).unwrap_or_default();
    section.lines().take_while(|line| *line != "COMMIT").map(str::to_owned).collect()
}

/// Another program deletes our chains and the rules that jump to them.
fn delete_chains(pod: &Pod) {
    for family in [Family::V4, Family::V6] {
        for table in ["nat", "mangle"] {
            let lines = saved(pod, family, table);
            let jumps = lines.iter().filter_map(|line| line.strip_prefix("-A "));
            let jumps = jumps.filter(|rule| !rule.starts_with("ISTIO_") && rule.contains("-j ISTIO_"));
            jumps.for_each(|rule| drop(pod.iptables(family, &format!("-t {table} -D {rule}"))));
            let chains = || lines.iter().filter_map(|line| line.strip_prefix(':')?.split(' ').next());
            for command in ["-F", "-X"] {
                for chain in chains().filter(|chain| chain.starts_with("ISTIO_")) {
                    pod.iptables(family, &format!("-t {table} {command} {chain}"));
                }
            }
        }
    }
}

/// Each rule is named, in both families, with the command that deletes it.
#[track_caller]
fn names(pod: &Pod, args: &[&str], rules: &[(&str, &str, &str)]) {
    let output = pod.istio_iptables(args).run().output();
    for (table, chain, rule) in rules {
        for family in [Family::V4, Family::V6] {
            let deletion = format!("{} -t {table} -D {chain} {rule}", pod.fixture.backend.tool(family, ""));
            let named = |line: &str| {
                line.contains("ambiguous rules kept (ours or foreign)")
                    && line.contains(&format!("`{table} {chain} {rule}"))
                    && line.contains(&deletion)
            };
            assert!(output.lines().any(named), "{args:?} does not name {table} {chain} {rule}:\n{output}");
        }
    }
}

/// A clean-up deletes each rule, or names it.
#[track_caller]
fn deletes_or_names(pod: &Pod, rules: &[(&str, &str, &str)]) {
    let output = pod.apply(&CLEANUP).output();
    for (table, chain, rule) in rules {
        for family in [Family::V4, Family::V6] {
            let is_left = saved(pod, family, table).iter().any(|line| line.contains(rule));
            let deletion = format!("{} -t {table} -D {chain} {rule}", pod.fixture.backend.tool(family, ""));
            assert_eq!(output.contains(&format!(" {deletion}")), is_left, "{deletion}: {output}");
        }
    }
}

fn has_record(pod: &Pod) -> bool {
    pod.namespace.run(|| tool("ip", &["link", "show", "lo"], "")).contains("alias")
}

#[track_caller]
fn names_nothing(pod: &Pod, args: &[&str]) {
    let output = pod.istio_iptables(args).run().output();
    assert!(!output.contains("kept (ours or foreign)"), "{output}");
}

fn rule_whose_chains_were_deleted_is_named(fixture: Fixture) {
    for (args, rules) in [(EXCLUDED, &OF_EXCLUDED[..]), (TPROXY, &OF_TPROXY)] {
        for interrupted in [None, Some(When::Before), Some(When::After)] {
            let pod = fixture.pod();
            pod.apply(&args);
            if let Some(when) = interrupted {
                // By the tool for IPv6: that of IPv4 has ended.
                let tools = KillingTools::at_call(2, when);
                let same = [&args[..], &["--force-apply"]].concat();
                pod.istio_iptables(&same).env("PATH", &tools.path()).run().ended_with(-1);
            }
            delete_chains(&pod);
            let left = rules.iter().map(|(table, chain, rule)| (table, format!("-A {chain} {rule}")));
            for (table, rule) in left {
                let lines = saved(&pod, Family::V6, table);
                assert!(lines.iter().any(|line| line.starts_with(&rule)), "{lines:?}");
            }
            if interrupted.is_some() && fixture.backend == Backend::IptablesNft {
                // It recorded the handles of what it found, which only tell where it has written nothing.
                deletes_or_names(&pod, rules);
                continue;
            }
            for args in [&["check"][..], &["check", "-b", "80"], &OTHERS, &OTHERS, &CLEANUP, &CLEANUP] {
                names(&pod, args, rules);
            }
        }
    }
}

/// A foreign rule that is identical to ours is put before it, so that the options' change has to leave both.
fn rule_that_a_finished_run_left_is_named_until_it_is_deleted(fixture: Fixture) {
    let (chain, rule) = ("PREROUTING", "-i net9 -j RETURN");
    for last in [&CLEANUP[..], &OTHERS] {
        let pod = fixture.pod();
        pod.apply(&EXCLUDED);
        for family in [Family::V4, Family::V6] {
            pod.iptables(family, &format!("-t nat -I {chain} {rule}"));
        }
        for args in [&OTHERS[..], &OTHERS, last, last] {
            names(&pod, args, &[("nat", chain, rule)]);
        }
        pod.apply(&OTHERS);
        // One of two is left, which another program needs.
        for family in [Family::V4, Family::V6] {
            pod.iptables(family, &format!("-t nat -D {chain} {rule}"));
        }
        names_nothing(&pod, &OTHERS);
        pod.apply(&OTHERS).output_contains("already converged");
        names_nothing(&pod, &CLEANUP);
        assert!(!has_record(&pod));
        for family in [Family::V4, Family::V6] {
            assert_eq!(saved(&pod, family, "nat").iter().filter(|line| line.contains(rule)).count(), 1);
        }
    }
}

/// `eth1` is excluded and a virtual interface, and a foreign rule for it is in between; then it is only one
/// of the two.
fn rule_of_earlier_options_like_one_of_the_present_ones_is_deleted_or_named(fixture: Fixture) {
    let (virtual_ones, excluded) = (["-b", "*", "-k", "docker0,net9"], ["-b", "*", "-c", "net9"]);
    let both = [&virtual_ones[..], &["-c", "net9"]].concat();
    let rules = [("nat", "PREROUTING", "-i net9 -j RETURN")];
    let returns = |pod: &Pod, family| {
        let lines = saved(pod, family, "nat");
        lines.iter().filter(|line| *line == "-A PREROUTING -i net9 -j RETURN").count()
    };
    for new in [virtual_ones, excluded] {
        let pod = fixture.pod();
        for family in [Family::V4, Family::V6] {
            pod.iptables(family, "-t nat -A PREROUTING -i net9 -j RETURN");
        }
        pod.apply(&both);
        for family in [Family::V4, Family::V6] {
            assert_eq!(returns(&pod, family), 3);
            pod.iptables(family, "-t nat -I PREROUTING -p tcp --dport 22 -j ACCEPT");
        }
        names_nothing(&pod, &[&["check"], &both[..]].concat());
        if fixture.backend == Backend::IptablesNft {
            pod.apply(&new);
            names_nothing(&pod, &CLEANUP);
        } else {
            for args in [&new[..], &new, &CLEANUP, &CLEANUP] {
                names(&pod, args, &rules);
            }
            // The rule that is named is deleted as the message says.
            for family in [Family::V4, Family::V6] {
                pod.iptables(family, "-t nat -D PREROUTING -i net9 -j RETURN");
            }
            names_nothing(&pod, &CLEANUP);
        }
        for family in [Family::V4, Family::V6] {
            assert_eq!(returns(&pod, family), 1, "{new:?}: {}", pod.save(family));
        }
        assert!(!has_record(&pod), "{new:?}");
    }
}

/// Without chains of ours it may have ended before it wrote anything: an identical foreign rule is not called
/// ours, and no record stays beside it. The limit that the README names: if another program has deleted the
/// chains, what is left of the run is not named.
fn what_a_first_run_may_not_have_written_is_not_named(fixture: Fixture) {
    for (when, is_written) in [(When::Before, false), (When::After, true)] {
        let pod = fixture.pod();
        if !is_written {
            for family in [Family::V4, Family::V6] {
                OF_EXCLUDED.iter().for_each(|(table, chain, rule)| {
                    pod.iptables(family, &format!("-t {table} -A {chain} {rule}"));
                });
            }
        }
        let tools = KillingTools::at_call(if is_written { 2 } else { 1 }, when);
        pod.istio_iptables(&EXCLUDED).env("PATH", &tools.path()).run().ended_with(-1);
        delete_chains(&pod);
        assert!(has_record(&pod));
        names_nothing(&pod, &["check"]);
        names_nothing(&pod, &CLEANUP);
        assert!(!has_record(&pod), "{when:?}");
        for (family, (table, chain, rule)) in
            [Family::V4, Family::V6].into_iter().flat_map(|family| OF_EXCLUDED.map(|of| (family, of)))
        {
            let lines = saved(&pod, family, table);
            let expected = format!("-A {chain} {rule}");
            assert_eq!(lines.iter().filter(|line| **line == expected).count(), 1, "{when:?}: {lines:?}");
        }
    }
}
