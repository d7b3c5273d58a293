//! The exit code for scripts that expect an answer.

use crate::broken_pods::OPTIONS;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        an_answer_is_captured_or_not,
        an_answer_that_a_foreign_rule_may_change_is_neither,
        an_answer_that_depends_on_what_is_not_given_is_neither,
        an_answer_with_a_problem_is_neither,
        what_was_not_read_is_no_answer,
        options_have_answers_without_a_pod
    ]
);

/// The exit codes where `captured` is expected, and where `not-captured` is.
fn codes(pod: &Pod, question: &[&str]) -> [i32; 2] {
    ["captured", "not-captured"].map(|answer| {
        let words = [&["explain"], question, &["--expect", answer]].concat();
        pod.bare_istio_iptables(&words).run().code()
    })
}

fn an_answer_is_captured_or_not(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&[&OPTIONS[..], &["-x", "10.7.0.0/16"]].concat());
    assert_eq!(codes(&pod, &["--live", "--to", "10.3.4.5:80"]), [0, 1]);
    assert_eq!(codes(&pod, &["--live", "--to", "10.7.0.1:80"]), [1, 0]);
}

fn an_answer_that_a_foreign_rule_may_change_is_neither(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    pod.iptables(Family::V4, "-t mangle -I OUTPUT -m statistic --mode random --probability 0.5 -j DROP");
    assert_eq!(codes(&pod, &["--live", "--to", "10.3.4.5:80"]), [1, 1]);
}

/// The question that names the user has an answer.
fn an_answer_that_depends_on_what_is_not_given_is_neither(fixture: Fixture) {
    if fixture.backend == Backend::Native {
        return;
    }
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    pod.iptables(Family::V4, "-t nat -I OUTPUT -m owner --uid-owner 2000 -j ACCEPT");
    let question = ["--live", "--to", "10.3.4.5:80"];
    assert_eq!(codes(&pod, &question), [1, 1], "its uid may be 2000");
    assert_eq!(codes(&pod, &[&question[..], &["--from", "uid:3000"]].concat()), [0, 1]);
    // A rule decides that is foreign: a problem.
    assert_eq!(codes(&pod, &[&question[..], &["--from", "uid:2000"]].concat()), [1, 1]);
}

fn an_answer_with_a_problem_is_neither(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    assert_eq!(codes(&pod, &["--live", "--to", "10.3.4.5:80"]), [1, 1], "no proxy listens");
}

fn what_was_not_read_is_no_answer(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    for question in [&["--expect", "no-problem"][..], &["--to", "10.3.4.5:80", "--expect", "captured"]] {
        let words = [&["explain", "--live"], question].concat();
        pod.bare_istio_iptables(&words).run().succeeded();
        let blind = pod.bare_istio_iptables(&words).empty_directory("/proc").run().ended_with(1);
        blind.output_contains("the processes cannot be listed");
    }
}

fn options_have_answers_without_a_pod(fixture: Fixture) {
    let pod = fixture.pod();
    assert_eq!(codes(&pod, &["-i", "*", "--to", "10.3.4.5:80"]), [0, 1]);
    assert_eq!(codes(&pod, &["-i", "", "--to", "10.3.4.5:80"]), [1, 0]);
}
