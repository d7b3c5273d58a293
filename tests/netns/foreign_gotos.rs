//! A foreign rule that jumps without a way back (`-g`) takes its packets from the rules behind it, whatever
//! the rules of its chain match.

use crate::explain_live::{Question, report};
use crate::lab::fixture::at;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(packets_that_do_not_come_back_are_named);

const OPTIONS: [&str; 4] = ["-i", "*", "-b", "*"];

/// Chains: without a rule, with one for other packets, with one that leads to another chain or returns.
const CHAINS: [&str; 5] = [
    "",
    "-A ELSEWHERE -p tcp -m tcp --dport 1 -j ACCEPT\n",
    "-A ELSEWHERE -p tcp -m comment --comment counted\n",
    ":DEEPER -\n-A ELSEWHERE -j DEEPER\n",
    ":DEEPER -\n-A ELSEWHERE -g DEEPER\n-A DEEPER -p tcp -j RETURN\n",
];

fn checked(pod: &Pod) -> (i32, String, String) {
    let check = pod.bare_istio_iptables(&["check"]).run();
    (check.code(), check.output(), pod.apply(&OPTIONS).output())
}

fn packets_that_do_not_come_back_are_named(fixture: Fixture) {
    for chain in CHAINS {
        for hook in ["OUTPUT", "PREROUTING"] {
            for how in ["-g", "-j"] {
                let pod = fixture.pod();
                let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]), pod.app_listens(&[8080]));
                pod.apply(&OPTIONS);
                for &family in fixture.families() {
                    let rules =
                        format!("*nat\n:ELSEWHERE -\n{chain}-I {hook} 1 -p tcp {how} ELSEWHERE\nCOMMIT\n");
                    pod.restore(family, &rules);
                }
                // Beside native rules it ends a chain of its own.
                let is_taken = how == "-g" && fixture.backend != Backend::Native;
                let case = format!("{hook} {how}, {chain}");
                let (code, check, run) = checked(&pod);
                // An ACCEPT there takes some packets from either.
                let is_named = is_taken || chain.contains("ACCEPT") && fixture.backend != Backend::Native;
                assert_eq!(code, i32::from(is_named), "{case}: {check}");
                let words = "packets that it hands to ELSEWHERE are not captured";
                assert_eq!(check.contains(words), is_taken, "{case}: {check}");
                assert_eq!(run.contains(words), is_taken, "{case}: {run}");
                for &family in fixture.families() {
                    is_explained(&pod, family, hook, is_taken);
                }
            }
        }
    }
}

/// What `explain` says of a packet in the hook, and what becomes of it.
fn is_explained(pod: &Pod, family: Family, hook: &str, is_taken: bool) {
    let (from, to) = if hook == "OUTPUT" {
        ("app", at(family.service(), 80))
    } else {
        ("outside", at(family.pod(), 8080))
    };
    let said = report(pod, &[], &Question { from, to, is_udp: false });
    let call = if from == "app" { pod.app().call(to) } else { pod.outside().call(to) };
    assert_eq!(call.response().server != "proxy", is_taken, "{family:?} {hook}");
    let verdict = if is_taken { "not-captured" } else { "captured" };
    assert_eq!(said["verdict"], verdict, "{said:#}");
    let rule = said["rule"].to_string();
    assert_eq!(rule.contains("ELSEWHERE") || rule.contains("DEEPER"), is_taken, "{said:#}");
}
