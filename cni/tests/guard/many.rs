//! Many pods at rest, and many changes of another program.

use std::path::Path;
use std::time::{Duration, Instant};

use istio_iptables::kernel::netlink::nftables::{Batch, Client, Family, Table, TableName};

use crate::common::Pod;

use crate::lab::{Agent, Node, in_pod};

/// Transactions of which the guard's buffer holds fewer: it has 8 MiB, and each notice takes some 800 bytes.
const MORE_THAN_THE_BUFFER_HOLDS: usize = 30_000;
/// What Istio's agent is documented to need, in kB: `resources.requests.memory` is 100Mi in
/// manifests/charts/istio-cni/values.yaml of istio/istio.
const ISTIO_REQUESTS: u64 = 100 * 1024;
/// The most that an agent may have for 250 pods, in kB: less than a tenth of that.
const LIMIT_AT_REST: u64 = 8 * 1024;
pub(crate) fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Replaces what is between two lines of a page.
pub(crate) fn replace(path: &Path, (begin, end): (&str, &str), text: &str) {
    let page = std::fs::read_to_string(path).unwrap();
    let (head, rest) = page.split_once(begin).expect("the page has the beginning");
    let (_, tail) = rest.split_once(end).expect("the page has the end");
    std::fs::write(path, format!("{head}{begin}\n{text}\n{end}{tail}")).unwrap();
}

/// The memory of an agent of which all pods were compared and nothing has changed.
#[test]
fn memory_of_many_pods_at_rest_is_limited() {
    let count = number("GUARD_PODS_AT_REST", 20);
    let node = Node::new();
    let _pods: Vec<Pod> = (0..count).map(|number| node.pod(&format!("p{number}"), "nftables")).collect();
    let of = |agent: &Agent| (agent.status("RssAnon"), agent.status("VmRSS"));
    let without = node.agent(&["--guard=off"]);
    let agent = node.agent(&[]);
    agent.until_guarded(u32::try_from(count).unwrap());
    std::thread::sleep(Duration::from_secs(2));
    let (with, without) = (of(&agent), of(&without));
    let text = format!(
        "At rest with {count} pods, the agent has {} kB of anonymous memory ({} kB resident); {} kB ({} kB) without the guard",
        with.0, with.1, without.0, without.1
    );
    let share = with.0 as f64 / ISTIO_REQUESTS as f64;
    let text = format!(
        "{text}. That is {share:.2}x of the {ISTIO_REQUESTS} kB that the chart of Istio's agent requests"
    );
    println!("{text}");
    if let Some(path) = std::env::var_os("GUARD_WRITE") {
        let (begin, end) =
            ("<!-- guard at rest: begin (written by make bench-guard) -->\n", "<!-- guard at rest: end -->");
        replace(Path::new(&path), (begin, end), &format!("{text}.\n"));
    }
    assert!(with.0 <= LIMIT_AT_REST, "{text}");
}

/// Wake-ups of the guard's thread are audits: one for each pod in 27 to 30 s, and the state files.
#[test]
fn at_rest_only_audits_wake_the_guard() {
    const TIME: Duration = Duration::from_secs(10);
    let node = Node::new();
    let _pods = [node.pod("a", "nftables"), node.pod("b", "nftables")];
    let agent = node.agent(&[]);
    agent.until_guarded(2);
    std::thread::sleep(Duration::from_secs(1));
    let switches = || {
        let text = agent.of_guard_thread("status");
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let before = switches();
    std::thread::sleep(TIME);
    let woken = switches() - before;
    println!("{woken} wake-ups in {TIME:?}");
    assert!(woken <= 40, "{woken}");
}

/// An agent that gets no processor for a while: the kernel drops notices once their buffer is full, also that
/// of a pod whose rules are flushed then. All pods are compared.
#[test]
fn rules_whose_notice_is_lost_are_repaired_before_the_audit() {
    let node = Node::new();
    let (busy, other) = (node.pod("busy", "nftables"), node.pod("other", "nftables"));
    let agent = node.agent(&[]);
    agent.until_guarded(2);
    let paused = agent.pause();
    busy.netns.run(|| {
        let mut client = Client::open().unwrap();
        let table = Table::new(TableName::new(Family::Inet, "busy"));
        for _ in 0..MORE_THAN_THE_BUFFER_HOLDS {
            let mut batch = Batch::new();
            batch.replace_table(&table);
            client.commit(&batch).unwrap();
        }
    });
    in_pod(&other, "nft flush ruleset");
    drop(paused);
    let drift = agent.logged("drift: ");
    assert_eq!(drift["pod"], "default/other");
    assert!(drift["msg"].as_str().unwrap().contains("others whose notices are lost"), "{drift}");
    assert_eq!(agent.logged("repaired: ")["pod"], "default/other");
    assert!(agent.metric("istio_cni_lost_notices_total") >= 1.0);
    agent.is_silent(Duration::from_secs(2));
    assert!((agent.metric("istio_cni_drift_total{reason=\"rules\"}") - 1.0).abs() < 0.1);
    assert!(node.is_captured(&busy) && node.is_captured(&other));
}

/// Another program changes its own table all the time.
#[test]
fn many_changes_of_another_program_hide_none_and_are_not_repaired() {
    const TIME: Duration = Duration::from_secs(5);
    let node = Node::new();
    let (busy, other) = (node.pod("busy", "nftables"), node.pod("other", "nftables"));
    let agent = node.agent(&[]);
    agent.until_guarded(2);
    let begin = Instant::now();
    let transactions = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            busy.netns.run(|| {
                let mut client = Client::open().unwrap();
                let table = Table::new(TableName::new(Family::Inet, "busy"));
                let mut count = 0u32;
                while begin.elapsed() < TIME {
                    let mut batch = Batch::new();
                    batch.replace_table(&table);
                    client.commit(&batch).unwrap();
                    count += 1;
                }
                count
            })
        });
        std::thread::sleep(TIME / 4);
        in_pod(&other, "nft flush ruleset");
        assert_eq!(agent.logged("repaired: ")["pod"], "default/other");
        in_pod(&busy, "nft delete table inet istio-proxy-nat");
        assert_eq!(agent.logged("repaired: ")["pod"], "default/busy");
        assert!(begin.elapsed() < TIME, "repaired while the other program goes on");
        writer.join().unwrap()
    });
    println!("{} transactions a second", f64::from(transactions) / TIME.as_secs_f64());
    agent.is_silent(Duration::from_secs(2));
    assert!(agent.metric("istio_cni_lost_notices_total") < 1.0);
    assert!((agent.metric("istio_cni_drift_total{reason=\"rules\"}") - 2.0).abs() < 0.1);
    assert!(node.is_captured(&busy) && node.is_captured(&other));
}
