//! `istio-cni status`: the states of a node, with the conclusion on the first line.

use std::os::unix::net::UnixListener;

use super::node::{LIST, Node, names};

#[track_caller]
fn status(node: &Node, code: i32, parts: &[&str]) {
    let output = node.run("status", &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with(parts[0]), "{}: {text}", parts[0]);
    for part in &parts[1..] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn status_names_what_is_installed_and_what_is_missing() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let not_installed = "not installed: pods start without capture: ";
    status(
        &node,
        1,
        &[not_installed, "/net.d/10-a.conflist: no entry of type istio-cni\n", "istio-cni: no such file\n"],
    );
    assert_eq!(
        (node.names(), names(&node.bin)),
        (vec!["10-a.conflist".to_owned()], Vec::new()),
        "nothing is changed"
    );

    node.install(&["--no-dry-add"]);
    let program = format!("/bin/istio-cni: istio-cni {}\n", env!("CARGO_PKG_VERSION"));
    let entry = "\nentry: ";
    status(
        &node,
        0,
        &[
            "installed: injected pods are captured\n",
            &program,
            entry,
            "/net.d/10-a.conflist\n",
            "/run/agent.sock: no agent listens\n",
            "captured: 0 pods\n",
        ],
    );
    std::fs::create_dir_all(node.run.join("state")).unwrap();
    std::fs::write(node.run.join("state/x.eth0.json"), "{}").unwrap();
    let _agent = UnixListener::bind(node.run.join("agent.sock")).unwrap();
    status(&node, 0, &["installed: ", "/run/agent.sock: an agent listens\n", "captured: 1 pod\n"]);

    node.install(&["--no-dry-add", "--drop-in=yes"]);
    status(&node, 0, &["installed: ", "/net.d/cluster/50-istio-cni.conf\n"]);
    node.uninstall(&[]);
    node.install(&["--no-dry-add", "--platform=openshift"]);
    status(&node, 0, &["installed: ", "/net.d/istio-cni.conf\n"]);
}

#[test]
fn status_names_why_pods_cannot_start() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    let program = node.bin.join("istio-cni");
    std::fs::remove_file(&program).unwrap();
    status(&node, 1, &["broken: no pod can start: ", "/bin/istio-cni: no such file\n"]);
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    status(&node, 1, &["broken: no pod can start: ", "/bin/istio-cni: not ours\n", "not ours: "]);
    std::fs::remove_file(&program).unwrap();
    node.install(&["--no-dry-add"]);
    // A directory for state that cannot be made.
    std::fs::remove_dir_all(&node.run).unwrap();
    std::fs::write(&node.run, "").unwrap();
    status(&node, 1, &["broken: injected pods cannot start: cannot write to "]);
    std::fs::remove_file(&node.run).unwrap();
    // Without annotations of the runtime an agent is needed.
    node.write("10-a.conflist", &node.read("10-a.conflist").replace("pod-annotations", "other"));
    status(&node, 1, &["broken: injected pods cannot start: nothing reports pods: "]);
}
