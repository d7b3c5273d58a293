//! Pods that the runtime has set up before our plugin was in the network configuration.

use netlab::process::run;
use serde_json::{Value, json};

use crate::audit::{audit, line};
use crate::common::{INJECTED, Pod};
use crate::lab::{Node, in_pod};

/// All rules of a pod.
fn rules(pod: &Pod) -> String {
    pod.netns.run(|| run("nft", &["list", "ruleset"]))
}

/// Makes the runtime's record older than the namespace, as that of a sandbox that has ended is.
fn is_from_before(record: &std::path::Path) {
    let written = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::options().append(true).open(record).unwrap().set_modified(written).unwrap();
}

#[test]
fn audit_lists_pods_that_have_started_without_capture() {
    let node = Node::new();
    node.install_entry("nftables");
    let captured = node.pod("captured", "nftables");
    node.record(&captured);
    let late = node.late_pod("late", &[INJECTED]);
    let plain = node.late_pod("plain", &[]);
    let (code, text) = audit(&node, &[]);
    assert_eq!(code, 1);
    assert_eq!(line(&text, &captured), "nftables ok");
    assert!(line(&text, &late).starts_with("none uncaptured no rules: its sandbox was set up at "), "{text}");
    assert!(!text.contains("default/plain"), "{text}");
    assert!(text.ends_with("2 pods: 1 ok, 0 drift, 1 uncaptured, 0 vanished, 0 unreadable\n"), "{text}");
    assert!(rules(&late).is_empty() && rules(&plain).is_empty());

    let (code, text) = audit(&node, &["--output=json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["count"]["uncaptured"]), (1, &json!(1)));
    let pod = &report["pods"][1];
    assert_eq!(
        (&pod["pod"], &pod["state"], &pod["container"]),
        (&json!("default/late"), &json!("uncaptured"), &json!("late"))
    );

    // Captured with its state lost, as after an uninstallation: the rules decide.
    std::fs::remove_file(node.state_file(&captured)).unwrap();
    std::fs::remove_file(node.path("results/pods-late-eth0")).unwrap();
    let (code, text) = audit(&node, &[]);
    assert_eq!((code, line(&text, &captured).as_str()), (0, "nftables ok"));
    in_pod(&captured, "nft flush chain inet istio-proxy-nat istio-output");
    let (code, text) = audit(&node, &[]);
    assert!(code == 1 && line(&text, &captured).starts_with("nftables drift "), "{text}");
}

#[test]
fn audit_leaves_out_what_is_not_to_be_captured_and_what_has_ended() {
    let node = Node::new();
    node.install_entry("nftables");
    let mut excluded = Pod::new("excluded", &[INJECTED]);
    excluded.args = excluded.args.replace("NAMESPACE=default", "NAMESPACE=kube-system");
    node.record(&excluded);
    let _init = node.late_pod("init", &[("sidecar.istio.io/status", r#"{"initContainers":["istio-init"]}"#)]);
    let reused = node.late_pod("reused", &[INJECTED]);
    is_from_before(&node.record(&reused));
    let _ended = node.late_pod("ended", &[INJECTED]);
    std::fs::remove_file(node.path("netns/ended")).unwrap();
    let (code, text) = audit(&node, &[]);
    assert!(code == 0 && text.starts_with("no captured pod is known: "), "{text}");
}

/// What cannot be judged is not hidden.
#[test]
fn audit_names_pods_that_cannot_be_judged() {
    let node = Node::new();
    node.install_entry("nftables");
    let own = node.late_pod("own", &[INJECTED]);
    std::fs::remove_file(node.path("netns/own")).unwrap();
    std::os::unix::fs::symlink("/proc/self/ns/net", node.path("netns/own")).unwrap();
    node.record(&own);
    let mut unknown = Pod::new("unknown", &[]);
    unknown.annotations = None;
    node.record(&unknown);
    let (code, text) = audit(&node, &[]);
    assert_eq!(code, 1);
    assert!(
        line(&text, &own)
            .contains("unreadable the runtime's results name the network namespace of this process"),
        "{text}"
    );
    assert!(
        line(&text, &unknown).contains("unreadable unknown whether pod default/unknown is captured"),
        "{text}"
    );
}

/// From outside, with the options of the pod's annotations, and guarded from then on.
#[test]
fn pods_that_started_before_the_plugin_are_captured_from_outside() {
    for backend in ["nftables", "iptables-nft", "iptables-legacy"] {
        let node = Node::new();
        let tproxy = ("sidecar.istio.io/interceptionMode", "TPROXY");
        let before = node.late_pod("before", &[INJECTED]);
        node.install_entry(backend);
        let agent = node.agent(&[&format!("--backend={backend}"), "--capture={\"dual_stack\": true}"]);
        node.until_captured(&before);
        // While it runs.
        let later = node.late_pod("later", &[INJECTED, tproxy]);
        node.until_captured(&later);
        assert!(later.netns.run(|| run("ip", &["rule"])).contains("lookup 133"), "TPROXY");
        let repaired = r#"istio_cni_repair_pods_repaired_total{type="repair",result="success"}"#;
        agent.until_metric(repaired, 2.0);
        agent.until_metric("istio_cni_uncaptured_pods", 0.0);
        agent.until_guarded(2);
        let (code, text) = audit(&node, &[]);
        assert_eq!(
            (code, line(&text, &before), line(&text, &later)),
            (0, format!("{backend} ok"), format!("{backend} ok"))
        );
        node.until_captured(&before);
        if backend == "nftables" {
            in_pod(&before, "nft flush ruleset");
            agent.logged("changed by nft (pid ");
            node.until_captured(&before);
        }
        // As the plugin's own: DEL forgets it.
        node.delete(&before);
        assert!(!node.state_file(&before).exists());
    }
}

/// As the guard does: the agent's image has no tools.
#[test]
fn rules_are_native_where_the_tools_of_the_backend_are_missing() {
    let node = Node::new();
    node.install_entry("iptables-legacy");
    let pod = node.late_pod("late", &[INJECTED]);
    let agent = node.agent_by(&["env", "PATH=/nonexistent"], &["--backend=iptables-legacy"]);
    node.until_captured(&pod);
    agent.until_metric(r#"istio_cni_repair_pods_repaired_total{type="repair",result="success"}"#, 1.0);
    let (code, text) = audit(&node, &[]);
    assert_eq!((code, line(&text, &pod)), (0, "nftables ok".to_owned()));
}

/// As libcni does DEL: the plugins first, then the record.
#[test]
fn state_of_a_pod_that_ended_meanwhile_is_removed() {
    let node = Node::new();
    node.install_entry("nftables");
    let agent = node.agent(&[]);
    let pod = node.late_pod("ended", &[INJECTED]);
    node.until_captured(&pod);
    // A record that is lost ends no pod.
    let record = node.path("results/pods-ended-eth0");
    let text = std::fs::read(&record).unwrap();
    std::fs::remove_file(&record).unwrap();
    let other = node.late_pod("other", &[INJECTED]);
    node.until_captured(&other);
    assert!(node.state_file(&pod).exists());
    std::fs::write(&record, text).unwrap();
    std::fs::remove_file(node.path("netns/ended")).unwrap();
    std::fs::remove_file(&record).unwrap();
    until_removed(&node, &pod);
    drop(agent);
}

/// CRI-O calls DEL with the plugins of ADD, so not ours for a pod that was captured from outside.
#[test]
fn state_of_a_pod_that_ended_while_no_agent_ran_is_removed() {
    let node = Node::new();
    node.install_entry("nftables");
    let [ended, running] = ["ended", "running"].map(|name| node.late_pod(name, &[INJECTED]));
    let agent = node.agent(&[]);
    for pod in [&ended, &running] {
        node.until_captured(pod);
        agent.until_metric("istio_cni_uncaptured_pods", 0.0);
    }
    drop(agent);
    // One of ADD, of which the runtime's own DEL is to come.
    let lost = node.pod("lost", "nftables");
    for name in ["ended", "lost"] {
        std::fs::remove_file(node.path("netns").join(name)).unwrap();
    }
    std::fs::remove_file(node.path("results/pods-ended-eth0")).unwrap();
    let _agent = node.agent(&[]);
    until_removed(&node, &ended);
    assert!(node.state_file(&running).exists() && node.state_file(&lost).exists());
}

fn until_removed(node: &Node, pod: &Pod) {
    let begin = std::time::Instant::now();
    while node.state_file(pod).exists() {
        assert!(begin.elapsed() < crate::lab::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn other_pods_are_not_touched() {
    let node = Node::new();
    node.install_entry("nftables");
    let plain = node.late_pod("plain", &[]);
    let init = node.late_pod("init", &[("sidecar.istio.io/status", r#"{"initContainers":["istio-init"]}"#)]);
    let mut excluded = Pod::new("excluded", &[INJECTED]);
    excluded.args = excluded.args.replace("NAMESPACE=default", "NAMESPACE=kube-system");
    node.record(&excluded);
    let reused = node.late_pod("reused", &[INJECTED]);
    is_from_before(&node.record(&reused));
    // Records that name two namespaces, and one in no directory of the runtime.
    let torn = node.late_pod("torn", &[INJECTED]);
    let text = std::fs::read_to_string(node.record(&torn)).unwrap();
    let other = text.replace("eth0", "net1").replace("/var/run/netns/torn", "/var/run/netns/plain");
    std::fs::write(node.path("results/more-torn-net1"), other).unwrap();
    let elsewhere = node.late_pod("elsewhere", &[INJECTED]);
    let record = node.record(&elsewhere);
    let text =
        std::fs::read_to_string(&record).unwrap().replace("/var/run/netns/elsewhere", "/srv/elsewhere");
    std::fs::write(&record, text).unwrap();
    // Captured with other options than the node's, and its state lost.
    let tproxy = ("sidecar.istio.io/interceptionMode", "TPROXY");
    let captured = Pod::new("captured", &[INJECTED, tproxy]);
    node.add(&captured, "nftables", &json!({}));
    std::fs::remove_file(node.state_file(&captured)).unwrap();
    let before = rules(&captured);
    node.record(&captured);

    let last = node.late_pod("zz-last", &[INJECTED]);
    let agent = node.agent(&["--capture={\"dual_stack\": true}"]);
    node.until_captured(&last);
    agent.until_metric(r#"istio_cni_repair_pods_repaired_total{type="repair",result="success"}"#, 1.0);
    for pod in [&plain, &init, &excluded, &reused, &torn, &elsewhere] {
        assert_eq!(rules(pod), "", "{}", pod.container);
        assert!(!node.state_file(pod).exists());
    }
    assert_eq!(rules(&captured), before);
    drop(agent);
}

#[test]
fn without_a_search_nothing_is_written() {
    let node = Node::new();
    node.install_entry("nftables");
    let pod = node.late_pod("late", &[INJECTED]);
    let agent = node.agent(&["--repair=off"]);
    let guarded = node.pod("guarded", "nftables");
    agent.until_guarded(1);
    assert!(!node.is_captured(&pod) && node.is_captured(&guarded));
    assert_eq!(rules(&pod), "");
}

/// The entry is the agent's consent: while Istio's CNI, or nothing, is in the configuration, no pod is ours.
#[test]
fn without_our_entry_nothing_is_written() {
    let node = Node::new();
    let list = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}, {"type": "istio-cni"}]});
    std::fs::write(node.path("net").join("10-pods.conflist"), list.to_string()).unwrap();
    let pod = node.late_pod("late", &[INJECTED]);
    let agent = node.agent(&[]);
    agent.logged("are not looked for now: ");
    assert_eq!(rules(&pod), "");
}

/// The rules are there, the state is not: the next attempt writes it.
#[test]
fn attempt_that_failed_halfway_is_completed() {
    let node = Node::new();
    node.install_entry("nftables");
    let pod = node.late_pod("late", &[INJECTED]);
    std::fs::create_dir_all(node.path("run")).unwrap();
    std::fs::write(node.path("run/state"), "").unwrap();
    let agent = node.agent(&["--guard=off"]);
    let line = agent.logged("cannot be repaired: ");
    assert!(line["msg"].as_str().unwrap().contains("run/state"), "{line}");
    agent.until_metric(r#"istio_cni_repair_pods_repaired_total{type="repair",result="fail"}"#, 1.0);
    std::fs::remove_file(node.path("run/state")).unwrap();
    agent.logged("repaired: started without capture at ");
    assert!(node.state_file(&pod).exists() && node.is_captured(&pod));
    agent.until_metric("istio_cni_uncaptured_pods", 0.0);
}

/// A directory of programs before those of the system, in which one program runs this first.
fn before_program(node: &Node, program: &str, line: &str) -> String {
    let dir = node.path("tools");
    std::fs::create_dir_all(&dir).unwrap();
    let script = dir.join(program);
    std::fs::write(&script, format!("#!/bin/sh\n{line}\nexec /usr/sbin/{program} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", dir.display())
}

/// State files are gone, or Istio's agent has written none: the rules are there, as ADD writes them.
#[test]
fn pods_whose_state_is_lost_are_guarded_again() {
    let node = Node::new();
    node.install_entry("nftables");
    let pods = ["nftables", "iptables-nft", "iptables-legacy"].map(|backend| node.pod(backend, backend));
    for pod in &pods {
        node.record(pod);
        std::fs::remove_file(node.state_file(pod)).unwrap();
    }
    // Rules of another version with the same effect: the rule before is about all packets.
    let version = node.pod("version", "iptables-nft");
    in_pod(&version, "iptables-nft -t nat -A ISTIO_REDIRECT -p tcp --dport 7 -j RETURN");
    node.record(&version);
    std::fs::remove_file(node.state_file(&version)).unwrap();
    let before = [pods.each_ref().map(rules).concat(), rules(&version)];
    let agent = node.agent(&[]);
    agent.until_guarded(4);
    assert_eq!([pods.each_ref().map(rules).concat(), rules(&version)], before, "nothing is written");
    in_pod(&version, "iptables-nft -t nat -D ISTIO_OUTPUT 1");
    agent.logged("changed by iptables-nft (pid ");
    node.until_captured(&version);
    let [native, iptables, _] = &pods;
    in_pod(native, "nft flush ruleset");
    agent.logged("drift: the nftables table inet istio-proxy-nat is not as written, changed by nft (pid ");
    node.until_captured(native);
    in_pod(iptables, "iptables-nft -t nat -F");
    agent.logged("changed by iptables-nft (pid ");
    node.until_captured(iptables);
    let backend = |pod: &Pod| audit_line(&node, pod);
    assert_eq!(pods.each_ref().map(backend), ["nftables ok", "iptables-nft ok", "iptables-legacy ok"]);
    // As the plugin's own: DEL forgets it.
    node.delete(native);
    assert!(!node.state_file(native).exists());
}

fn audit_line(node: &Node, pod: &Pod) -> String {
    line(&audit(node, &[]).1, pod)
}

/// Which options they had is not known: to write those of today would change the pod.
#[test]
fn pods_with_other_rules_and_no_state_are_named_as_not_guarded() {
    let node = Node::new();
    node.install_entry("nftables");
    let pod = Pod::new("other", &[INJECTED]);
    node.add(&pod, "nftables", &json!({"dual_stack": true, "dns": true}));
    std::fs::remove_file(node.state_file(&pod)).unwrap();
    node.record(&pod);
    let before = rules(&pod);
    let agent = node.agent(&[]);
    let line = agent.logged("not guarded: ");
    assert_eq!(line["pod"], "default/other");
    assert!(
        audit_line(&node, &pod).contains("; not guarded: it has no state file"),
        "{}",
        audit_line(&node, &pod)
    );
    assert!(rules(&pod) == before && !node.state_file(&pod).exists());
}

/// Rules of one family are written, then the agent and the plugin end.
#[test]
fn rules_of_a_capture_that_was_killed_are_completed() {
    let node = Node::new();
    node.install_entry("iptables-legacy");
    let pod = node.late_pod("late", &[INJECTED]);
    // The tool is a child of the plugin, and this one of the agent.
    let kill = "case \"$*\" in *--test*) ;; *) read -r stat < /proc/$PPID/stat; set -- $stat \"$@\"; \
        kill -9 $4 $PPID; exit 1;; esac";
    let path = before_program(&node, "ip6tables-legacy-restore", kill);
    let mut agent = node.agent_by(&["env", &path], &["--backend=iptables-legacy"]);
    agent.child.wait().unwrap();
    let legacy = || pod.netns.run(|| run("iptables-legacy-save", &["-t", "nat"]));
    assert!(legacy().contains("ISTIO_OUTPUT") && !node.state_file(&pod).exists(), "{}", legacy());
    let agent = node.agent(&["--backend=iptables-legacy"]);
    node.until_captured(&pod);
    agent.logged("repaired: started without capture at ");
    assert!(node.state_file(&pod).exists());
    agent.until_guarded(1);
}

/// Rules of one family are repaired, then the agent ends.
#[test]
fn repair_that_was_killed_is_completed() {
    let node = Node::new();
    let pod = node.pod("pod", "iptables-nft");
    let path = before_program(&node, "ip6tables-nft-restore", "kill -9 $PPID; exit 1");
    let mut agent = node.agent_by(&["env", &path], &["--backend=iptables-nft"]);
    agent.until_guarded(1);
    in_pod(&pod, "nft flush ruleset");
    agent.child.wait().unwrap();
    assert!(rules(&pod).contains("ISTIO_OUTPUT") && !node.is_captured(&pod), "{}", rules(&pod));
    let agent = node.agent(&["--backend=iptables-nft"]);
    agent.logged("drift: ");
    agent.logged("repaired: ");
    assert!(node.is_captured(&pod));
}

/// Another program changes rules while the tools of a repair run, whose own notices are not its.
#[test]
fn program_that_changes_rules_beside_a_repair_is_named() {
    let node = Node::new();
    let pod = node.pod("pod", "iptables-nft");
    let path = before_program(&node, "ip6tables-nft-restore", "nft insert rule ip nat ISTIO_OUTPUT accept");
    let agent = node.agent_by(&["env", &path], &["--backend=iptables-nft"]);
    agent.until_guarded(1);
    in_pod(&pod, "nft flush ruleset");
    agent.logged("drift: ");
    let other = agent.logged("drift: ");
    let text = other["msg"].as_str().unwrap();
    let (what, by) = text.split_once(", changed by ").expect("a program");
    assert!(what.contains("1 rule unexpected"), "{text}");
    assert!(by.starts_with("nft (pid ") && !by.contains(','), "no tool of the guard's own: {text}");
}
