//! What happens to a pod whose rules another program changes.

use std::time::{Duration, SystemTime};

use netlab::process::run;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

use crate::common::Pod;
use crate::lab::{Agent, Node, in_pod};

/// Longer than a notice takes, on a loaded machine.
const QUIET: Duration = Duration::from_secs(2);

/// Changes of native tables, and of those of iptables.
const NATIVE: [&str; 4] = [
    "nft flush ruleset",
    "nft delete table inet istio-proxy-nat",
    "nft flush chain inet istio-proxy-nat istio-output",
    "nft insert rule inet istio-proxy-nat istio-output accept",
];
const IPTABLES: [&str; 4] = [
    "iptables-nft -t nat -I ISTIO_OUTPUT -j RETURN",
    "nft flush ruleset",
    "iptables-nft -t nat -F",
    "iptables-nft -t nat -D ISTIO_OUTPUT 1",
];

#[test]
fn changes_are_reported_with_their_program_and_repaired() {
    for (backend, changes) in [("nftables", NATIVE), ("iptables-nft", IPTABLES)] {
        let node = Node::new();
        let pods: Vec<Pod> = (0..4).map(|number| node.pod(&format!("{backend}-{number}"), backend)).collect();
        let agent = node.agent(&[]);
        agent.until_guarded(4);
        for (pod, change) in pods.iter().zip(changes) {
            in_pod(pod, change);
            let drift = agent.logged("drift: ");
            let name = change.split(' ').next().unwrap();
            let text = drift["msg"].as_str().unwrap();
            assert!(text.contains(&format!("changed by {name} (pid ")), "{change}: {drift}");
            assert_eq!(drift["pod"], format!("default/{}", pod.container));
            agent.logged("repaired: ");
            node.until_captured(pod);
        }
        agent.until_metric("istio_cni_drifted_pods", 0.0);
        assert!(agent.metric("istio_cni_drift_total{reason=\"rules\"}") >= 4.0);
        assert!(agent.metric("istio_cni_repair_seconds_count") >= 4.0);
        assert!(agent.metric("istio_cni_lost_notices_total") < 1.0);
    }
}

/// Nothing announces a change of iptables-legacy, and to an agent without the capability nothing is announced
/// at all.
#[test]
fn changes_that_are_not_announced_are_found_by_the_audit() {
    let node = Node::new();
    let legacy = node.pod("legacy", "iptables-legacy");
    let native = node.pod("native", "nftables");
    let agent = node.agent(&[]);
    agent.until_guarded(2);
    let other = Node::new();
    let silent = other.pod("silent", "nftables");
    let capabilities = ["setpriv", "--bounding-set=-net_broadcast", "--inh-caps=-net_broadcast"];
    let without = other.agent_by(&capabilities, &[]);
    without.until_guarded(1);
    assert!(without.metric("istio_cni_guard_notices") < 1.0 && agent.metric("istio_cni_guard_notices") > 0.0);
    in_pod(&legacy, "iptables-legacy -t nat -F");
    in_pod(&silent, "nft flush ruleset");
    in_pod(&native, "nft flush ruleset");
    assert_eq!(agent.logged("repaired: ")["pod"], "default/native");
    let drift = agent.logged("drift: ");
    assert_eq!(drift["pod"], "default/legacy");
    assert!(!drift["msg"].as_str().unwrap().contains("changed by"), "{drift}");
    agent.logged("repaired: ");
    without.logged("repaired: ");
    for (node, pod) in [(&node, &legacy), (&node, &native), (&other, &silent)] {
        node.until_captured(pod);
    }
}

/// As in the DaemonSet, and as in the agent's image without any tool.
#[test]
fn the_capabilities_of_the_daemonset_are_enough_and_each_one_that_is_missing_is_named() {
    let all = ["net_admin", "net_broadcast", "sys_admin"];
    let start = |node: &Node, capabilities: &[&str]| {
        let list: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
        let bounding = format!("--bounding-set=-all{list}");
        node.agent_by(&["setpriv", &bounding, "--inh-caps=-all", "env", "PATH=/nonexistent"], &[])
    };
    let node = Node::new();
    let pod = node.pod("few", "nftables");
    // A path through another process would take SYS_PTRACE, too: a runtime has files.
    let file = node.path("netns").join("few");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "").unwrap();
    let none = None::<&str>;
    mount(Some(pod.netns.path().as_str()), &file, none, MsFlags::MS_BIND, none).unwrap();
    let agent = start(&node, &all);
    agent.until_guarded(1);
    assert!(agent.metric("istio_cni_guard_notices") > 0.0);
    in_pod(&pod, "nft flush ruleset");
    assert_eq!(agent.logged("repaired: ")["pod"], "default/few");
    drop(agent);
    umount2(&file, MntFlags::MNT_DETACH).unwrap();
    for missing in all {
        let others: Vec<&str> = all.into_iter().filter(|name| *name != missing).collect();
        let agent = start(&Node::new(), &others);
        let line = agent.logged("changes are not announced: ");
        let wanted = format!("; missing capability {}", missing.to_uppercase());
        assert!(line["msg"].as_str().unwrap().ends_with(&wanted), "{line}");
    }
}

/// As in the agent's image.
const WITHOUT_TOOLS: [&str; 2] = ["env", "PATH=/nonexistent"];

/// Rules that are gone are written natively. Those that are damaged cannot be deleted without the tools.
#[test]
fn rules_of_iptables_without_its_tools_are_repaired_if_they_are_gone() {
    let node = Node::new();
    let (gone, damaged) = (node.pod("gone", "iptables-nft"), node.pod("damaged", "iptables-nft"));
    let agent = node.agent_by(&WITHOUT_TOOLS, &[]);
    agent.until_guarded(2);
    assert!(agent.metric("istio_cni_drift_total{reason=\"rules\"}") < 1.0, "both are as they should be");
    in_pod(&gone, "nft flush ruleset");
    assert_eq!(agent.logged("repaired: ")["pod"], "default/gone");
    assert!(node.is_captured(&gone));
    in_pod(&damaged, "iptables-nft -t nat -D ISTIO_OUTPUT 1");
    let drift = agent.logged("drift: ");
    assert!(drift["msg"].as_str().unwrap().contains("changed by iptables-nft (pid "), "{drift}");
    agent.logged("put the tools of iptables-nft into the image");
    // The next attempts are not logged.
    agent.is_silent(QUIET);
    agent.until_metric("istio_cni_drifted_pods", 1.0);
    let tables = damaged.netns.run(|| run("nft", &["list", "tables"]));
    assert!(!tables.contains("istio-proxy"), "not in both: {tables}");
}

/// Nothing announces a change of iptables-legacy: one of nftables has the rules compared.
#[test]
fn rules_of_iptables_legacy_are_compared_without_its_tools() {
    let node = Node::new();
    let pod = node.pod("legacy", "iptables-legacy");
    let agent = node.agent_by(&WITHOUT_TOOLS, &[]);
    agent.until_guarded(1);
    in_pod(&pod, "nft add table inet other");
    std::thread::sleep(QUIET);
    assert!(agent.metric("istio_cni_drift_total{reason=\"rules\"}") < 1.0, "{:?}", agent.lines());
    assert!(node.is_captured(&pod));
    in_pod(&pod, "iptables-legacy -t nat -D ISTIO_OUTPUT 1");
    in_pod(&pod, "nft delete table inet other");
    agent.logged("drift: ");
    agent.logged("put the tools of iptables-legacy into the image");
    let tables = pod.netns.run(|| run("nft", &["list", "tables"]));
    assert!(!tables.contains("istio-proxy"), "not in both: {tables}");
}

#[test]
fn reported_changes_are_left() {
    let node = Node::new();
    let pod = node.pod("left", "nftables");
    let agent = node.agent(&["--guard=report"]);
    agent.until_guarded(1);
    in_pod(&pod, "nft flush ruleset");
    agent.logged("drift: ");
    agent.until_metric("istio_cni_drifted_pods", 1.0);
    agent.is_silent(QUIET);
    assert!(!node.is_captured(&pod));
    node.add(&pod, "nftables", &json!({"dual_stack": true}));
    agent.until_metric("istio_cni_drifted_pods", 0.0);
}

#[test]
fn foreign_rules_before_ours_in_a_chain_of_iptables_are_reported() {
    let node = Node::new();
    let pod = node.pod("before", "iptables-nft");
    let agent = node.agent(&[]);
    agent.until_guarded(1);
    in_pod(&pod, "iptables-nft -t nat -I OUTPUT -p tcp -j ACCEPT");
    let line = agent.logged("a foreign rule decides before ours");
    assert!(line["msg"].as_str().unwrap().contains("changed by iptables-nft (pid "), "{line}");
}

#[test]
fn foreign_rules_that_decide_are_reported_with_their_program() {
    let node = Node::new();
    let pod = node.pod("foreign", "nftables");
    let agent = node.agent(&[]);
    agent.until_guarded(1);
    in_pod(&pod, "nft add table ip agent");
    agent.is_silent(QUIET);
    let chain = "{ type nat hook output priority -150; policy accept; }";
    pod.netns.run(|| run("nft", &["add", "chain", "ip", "agent", "out", chain]));
    in_pod(&pod, "nft add rule ip agent out ip protocol tcp redirect to :7777");
    let line = agent.logged("ip agent out");
    assert!(line["msg"].as_str().unwrap().contains("changed by nft (pid "), "{line}");
    in_pod(&pod, "nft delete table ip agent");
    agent.logged("gone: ");
    assert!(agent.metric("istio_cni_drift_total{reason=\"foreign\"}") >= 1.0);
    assert!(agent.metric("istio_cni_drift_total{reason=\"rules\"}") < 1.0);
    assert!(node.is_captured(&pod));
}

#[test]
fn changes_while_no_agent_runs_are_found_at_the_start() {
    let node = Node::new();
    let pod = node.pod("before", "nftables");
    let mut agent = node.agent(&[]);
    agent.until_guarded(1);
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    in_pod(&pod, "nft flush ruleset");
    let agent = node.agent(&[]);
    agent.logged("repaired: ");
    node.until_captured(&pod);
}

#[test]
fn new_pods_are_guarded_at_once() {
    let node = Node::new();
    let agent = node.agent(&[]);
    agent.until_guarded(0);
    let pod = node.pod_with("new", "nftables", &json!({}));
    agent.until_guarded(1);
    in_pod(&pod, "nft flush ruleset");
    agent.logged("repaired: ");
    node.until_captured(&pod);
}

fn guarded_and_forgotten(node: &Node, agent: &Agent, pod: &Pod) {
    agent.until_guarded(1);
    node.delete(pod);
    agent.until_guarded(0);
}

#[test]
fn pods_that_are_deleted_are_not_repaired() {
    let node = Node::new();
    let pod = node.pod("deleted", "nftables");
    let agent = node.agent(&[]);
    guarded_and_forgotten(&node, &agent, &pod);
    in_pod(&pod, "nft flush ruleset");
    agent.is_silent(QUIET);
    assert_eq!(pod.netns.run(|| run("nft", &["list", "ruleset"])), "");
}

/// A link to another namespace disappears with the pod's.
#[test]
fn guard_keeps_no_namespace() {
    let (node, outside) = (Node::new(), netlab::Namespace::new());
    let pod = node.pod("ends", "nftables");
    outside.connect("peer", &pod.netns, "eth0");
    let agent = node.agent(&[]);
    agent.until_guarded(1);
    in_pod(&pod, "nft flush ruleset");
    agent.logged("repaired: ");
    agent.is_silent(QUIET);
    drop(pod);
    let begin = std::time::Instant::now();
    while outside.run(|| run("ip", &["-o", "link"])).contains("peer") {
        assert!(begin.elapsed() < Duration::from_secs(20), "something keeps the namespace");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The state of a pod that ended without DEL names a namespace whose number another pod has got since.
#[test]
fn namespaces_with_the_number_of_an_earlier_one_are_left() {
    let node = Node::new();
    let pod = node.pod("earlier", "nftables");
    let other = Pod::new("later", &[]);
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(other.netns.path()).unwrap());
    let file = node.state_file(&pod);
    let mut state: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    state["netns"] = json!(inode);
    std::fs::write(&file, state.to_string()).unwrap();
    let written = SystemTime::now() - Duration::from_secs(3600);
    std::fs::File::options().append(true).open(&file).unwrap().set_modified(written).unwrap();
    std::os::unix::fs::symlink(other.netns.path(), node.path("netns/later")).unwrap();
    let agent = node.agent(&[]);
    agent.until_guarded(0);
    agent.is_silent(QUIET);
    assert_eq!(other.netns.run(|| run("nft", &["list", "ruleset"])), "");
}

/// A second ADD may have other options.
#[test]
fn rules_of_a_later_add_are_not_changed_back() {
    let node = Node::new();
    let pod = node.pod("again", "nftables");
    let agent = node.agent(&[]);
    agent.until_guarded(1);
    for round in 0..10 {
        node.add(&pod, "nftables", &json!({"dual_stack": round % 2 == 0, "dns": round % 3 == 0}));
        assert!(node.is_captured(&pod), "{round}");
    }
    agent.is_silent(QUIET);
    assert!(node.is_captured(&pod));
}

/// Two programs that remove the rules in turn, and the guard that writes them again.
#[test]
fn fights_are_paced_and_all_programs_in_it_are_named() {
    let node = Node::new();
    let pod = node.pod("fight", "nftables");
    let firewall = node.path("firewall");
    let nft = ["/usr/sbin/nft", "/sbin/nft"].into_iter().find(|path| std::fs::exists(path).unwrap());
    std::fs::copy(nft.expect("nft"), &firewall).unwrap();
    let agent = node.agent(&[]);
    agent.until_guarded(1);
    // Three repairs follow at once, and more if this machine is slower than the first pauses.
    let programs = ["nft".to_owned(), firewall.display().to_string()];
    let waiting = programs.iter().cycle().take(20).find_map(|program| {
        in_pod(&pod, &format!("{program} flush ruleset"));
        let line = agent.logged_any(&["repaired: ", "the next repair is in"]);
        (!line["msg"].as_str().unwrap().starts_with("repaired")).then_some(line)
    });
    let waiting = waiting.expect("a pause");
    let text = waiting["msg"].as_str().unwrap();
    let own = format!("after each repair by istio-cni-guard (pid {}), changed by ", agent.child.id());
    assert!(
        [own.as_str(), "nft (pid ", "firewall (pid "].iter().all(|part| text.contains(part)),
        "{waiting}"
    );
    for program in ["nft", "firewall"] {
        let metric = format!("istio_cni_repair_conflicts_total{{program=\"{program}\"}}");
        assert!(agent.metric(&metric) > 0.0, "{metric}");
    }
    agent.logged("repaired: ");
    node.until_captured(&pod);
}

/// What the rules would capture is dropped while a repair waits.
#[test]
fn lockdown_lasts_until_the_repair() {
    let node = Node::new();
    let pod = node.pod("locked", "nftables");
    let agent = node.agent(&["--guard=lockdown"]);
    agent.until_guarded(1);
    let tables = || pod.netns.run(|| run("nft", &["list", "tables"]));
    // Three repairs follow at once, and more if this machine is slower than the first pauses.
    let locked = (0..10).find_map(|_| {
        in_pod(&pod, "nft flush ruleset");
        let line = agent.logged_any(&["repaired: ", "lockdown: new connections"]);
        let is_repaired = line["msg"].as_str().unwrap().starts_with("repaired");
        assert!(!is_repaired || !tables().contains("lockdown"), "rules that are repaired at once");
        (!is_repaired).then_some(line)
    });
    assert_eq!(locked.expect("a lockdown")["pod"], "default/locked");
    assert!(tables().contains("istio-lockdown-nat"));
    agent.logged("lockdown ends");
    node.until_captured(&pod);
    assert!(!tables().contains("lockdown"));
}

#[test]
fn a_missing_directory_of_namespaces_is_an_error_once_there_are_pods() {
    let node = Node::new();
    std::fs::remove_dir_all(node.path("netns")).unwrap();
    let agent = node.agent(&[]);
    agent.is_silent(Duration::from_secs(1));
    assert!(agent.lines().iter().all(|line| line["level"] != "error"));
    let pod = Pod::new("pod", &[crate::common::INJECTED]);
    node.add(&pod, "nftables", &json!({}));
    let line = agent.logged("captured pods are not guarded: --netns-dir: cannot read ");
    assert_eq!(line["level"], "error");
    agent.until_metric("istio_cni_unguarded_pods", 1.0);
    assert!(agent.metric("istio_cni_guard_failures_total") > 0.0);
    std::fs::create_dir(node.path("netns")).unwrap();
    std::os::unix::fs::symlink(pod.netns.path(), node.path("netns/pod")).unwrap();
    agent.until_guarded(1);
    agent.until_metric("istio_cni_unguarded_pods", 0.0);
}

/// A runtime that has been killed sends no DEL.
#[test]
fn namespaces_that_end_without_del_are_not_counted_as_guarded() {
    let node = Node::new();
    let (pod, _other) = (node.pod("ends", "nftables"), node.pod("stays", "nftables"));
    let agent = node.agent(&[]);
    assert_eq!(agent.logged("guarding the rules of captured pods")["action"], "repair");
    agent.until_guarded(2);
    drop(pod);
    let begin = std::time::Instant::now();
    std::fs::remove_file(node.path("netns/ends")).unwrap();
    agent.until_guarded(1);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    agent.until_metric("istio_cni_unguarded_pods", 1.0);
}

/// The kernel meets no rule of a dormant table. The transaction that activates it changes nothing else.
#[test]
fn dormant_tables_of_iptables_nft_are_activated() {
    let node = Node::new();
    let pod = node.pod("dormant", "iptables-nft");
    let before = pod.netns.run(|| run("nft", &["list", "ruleset"]));
    let agent = node.agent(&[]);
    agent.until_guarded(1);
    pod.netns.run(|| run("nft", &["add table ip nat { flags dormant; }"]));
    let drift = agent.logged("drift: ");
    assert!(drift["msg"].as_str().unwrap().contains("changed by nft (pid "), "{drift}");
    agent.logged("repaired: ");
    node.until_captured(&pod);
    assert_eq!(pod.netns.run(|| run("nft", &["list", "ruleset"])), before);
}
