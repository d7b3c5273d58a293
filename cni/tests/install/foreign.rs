//! Istio's own istio-cni on the node: the same type, file names and program name as ours.

use std::path::Path;

use super::agent::Agent;
use super::node::{LIST, Node, SINGLE, program};

/// As Istio's agent writes it, behind the last plugin.
fn istio(ambient: bool) -> String {
    format!(
        r#"{{"ambient_enabled": {ambient}, "cni_agent_run_dir": "/var/run/istio-cni", "exclude_namespaces": ["kube-system"], "name": "istio-cni", "type": "istio-cni"}}"#
    )
}

fn list_with(entry: &str) -> String {
    LIST.replace("\n  ]", &format!(",\n    {entry}\n  ]"))
}

/// A program that prints nothing, as large as Istio's.
fn write_program(node: &Node) -> Vec<u8> {
    let mut bytes = b"#!/bin/sh\nexit 1\n".to_vec();
    bytes.resize(65 << 20, 0);
    std::fs::write(node.bin.join("istio-cni"), &bytes).unwrap();
    bytes
}

/// Everything in a folder, by path.
fn snapshot(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(snapshot(&entry.path()));
        } else {
            found.push((entry.path(), std::fs::read(entry.path()).unwrap()));
        }
    }
    found.sort();
    found
}

/// Refused with each of these words, and nothing is changed.
#[track_caller]
fn refused(node: &Node, options: &[&str], expected: &[&str]) {
    let before = snapshot(&node.path(""));
    let output = node.run("install", &[&["--once", "--no-dry-add"], options].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for part in expected {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(snapshot(&node.path("")) == before, "changed: {:?}", node.names());
}

#[test]
fn entry_and_program_of_istio_are_refused() {
    let remedy =
        "remove Istio's CNI first (its DaemonSet istio-cni-node), or replace it with --replace-istio";
    let node = Node::new(&[("10-a.conflist", &list_with(&istio(false)))]);
    for options in [&[][..], &["--drop-in=yes"], &["--platform=openshift"]] {
        refused(
            &node,
            options,
            &["/10-a.conflist: an entry of type istio-cni that is not ours, in sidecar mode", remedy],
        );
    }
    let node = Node::new(&[("10-a.conflist", LIST)]);
    write_program(&node);
    refused(&node, &[], &["/bin/istio-cni: a program that is not ours", remedy]);
    // Not the runtime's list, but a network plugin may delegate to it.
    let node = Node::new(&[("10-a.conflist", LIST), ("90-b.conflist", &list_with(&istio(false)))]);
    refused(&node, &[], &["/90-b.conflist: an entry"]);
    // In the directory of networks that multus calls, and as a drop-in file.
    for name in ["istio-cni.conf", "YYY-istio-cni.conf", "cluster/50-istio-cni.conf", "cluster/60-x.conf"] {
        let node = Node::new(&[("10-a.conflist", LIST)]);
        std::fs::create_dir(node.net.join("cluster")).unwrap();
        node.write(name, &istio(false));
        for options in [&[][..], &["--drop-in=yes"], &["--platform=openshift"]] {
            refused(
                &node,
                options,
                &[&format!("/{name}: a configuration of type istio-cni that is not ours")],
            );
        }
    }
}

#[test]
fn ambient_mode_is_refused_whatever_the_options() {
    for (name, text) in [
        ("10-a.conflist", list_with(&istio(true))),
        ("02-istio-cni.conflist", list_with(&istio(true))),
        ("istio-cni.conf", istio(true)),
        // Go reads keys without regard to case.
        ("10-a.conflist", list_with(r#"{"TYPE": "istio\u002dcni", "Ambient_Enabled": true}"#)),
    ] {
        let node = Node::new(&[("10-a.conflist", LIST)]);
        node.write(name, &text);
        write_program(&node);
        for options in [&[][..], &["--replace-istio"], &["--replace-istio", "--drop-in=yes"]] {
            refused(&node, options, &[name, "in ambient mode", "remove Istio's CNI first"]);
        }
    }
}

#[test]
fn sidecar_mode_is_replaced_on_request() {
    let node = Node::new(&[
        ("10-a.conflist", &list_with(&istio(false))),
        ("90-b.conflist", &list_with(&istio(false))),
    ]);
    write_program(&node);
    node.install(&["--no-dry-add", "--replace-istio"]);
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    assert!(node.read("10-a.conflist").contains("io.kubernetes.cri.pod-annotations"));
    assert_eq!(node.read("90-b.conflist"), LIST, "our program would refuse pods with Istio's configuration");
    assert_eq!(std::fs::read(node.bin.join("istio-cni")).unwrap(), std::fs::read(program()).unwrap());
    node.uninstall(&[]);
    assert_eq!(node.read("10-a.conflist"), LIST);

    let node = Node::with_program(&[("10-a.conflist", &list_with(&istio(false)))]);
    node.install(&["--no-dry-add", "--replace-istio", "--drop-in=yes"]);
    assert_eq!(node.read("10-a.conflist"), LIST);
    assert!(node.read("cluster/50-istio-cni.conf").contains("io.kubernetes.cri.pod-annotations"));

    let node = Node::with_program(&[("istio-cni.conf", &istio(false))]);
    node.install(&["--no-dry-add", "--replace-istio", "--platform=openshift"]);
    assert!(node.read("istio-cni.conf").contains("standalone"));

    // What would run beside ours, or instead of it.
    for (name, options) in [
        ("cluster/60-x.conf", &["--replace-istio"][..]),
        ("cluster/60-x.conf", &["--replace-istio", "--drop-in=yes"]),
        ("YYY-istio-cni.conf", &["--replace-istio", "--platform=openshift"]),
    ] {
        let node = Node::new(&[("10-a.conflist", LIST)]);
        std::fs::create_dir(node.net.join("cluster")).unwrap();
        node.write(name, &istio(false));
        refused(&node, options, &[name, "remove Istio's CNI first", "and these files"]);
    }
}

#[test]
fn file_of_our_name_with_something_else_is_refused() {
    for text in ["", "{", r#"{"type": "bandwidth"}"#] {
        let node = Node::new(&[("istio-cni.conf", text)]);
        for options in [&["--platform=openshift"][..], &["--platform=openshift", "--replace-istio"]] {
            refused(&node, options, &["/istio-cni.conf: not ours; nothing was changed; remove the file"]);
        }
        let node = Node::new(&[("10-a.conflist", LIST)]);
        std::fs::create_dir(node.net.join("cluster")).unwrap();
        node.write("cluster/50-istio-cni.conf", text);
        refused(
            &node,
            &["--drop-in=yes"],
            &["/50-istio-cni.conf: not ours; nothing was changed; remove the file"],
        );
        node.uninstall(&[]);
        assert_eq!(node.read("cluster/50-istio-cni.conf"), text);
    }
}

#[test]
fn other_versions_of_ours_are_ours() {
    let older =
        r#"{"type": "istio-cni", "capabilities": {"io.kubernetes.cri.pod-annotations": true}, "older": 1}"#;
    let node = Node::new(&[("10-a.conflist", &list_with(older))]);
    let mut bytes = std::fs::read(program()).unwrap();
    bytes.extend([0; 4096]);
    std::fs::write(node.bin.join("istio-cni"), &bytes).unwrap();
    node.install(&["--no-dry-add"]);
    assert!(!node.read("10-a.conflist").contains("older"));
    assert_eq!(std::fs::read(node.bin.join("istio-cni")).unwrap().len(), bytes.len() - 4096);
    // Without the capability, by which containerd would pass annotations: installation mends it.
    let text = node.read("10-a.conflist").replace("io.kubernetes.cri.pod-annotations", "other");
    node.write("10-a.conflist", &text);
    node.install(&["--no-dry-add"]);
    assert!(node.read("10-a.conflist").contains("io.kubernetes.cri.pod-annotations"));
    // The annotation, across the boundary of what is read at once.
    let bytes = [vec![0; (1 << 20) - 5], b"istio-iptables/capture-options".to_vec(), vec![0; 100]].concat();
    std::fs::write(node.bin.join("istio-cni"), bytes).unwrap();
    node.install(&["--no-dry-add"]);
    // An empty file counts as no program.
    std::fs::write(node.bin.join("istio-cni"), "").unwrap();
    node.install(&["--no-dry-add"]);
}

#[test]
fn removal_leaves_what_is_not_ours_and_names_it() {
    let text = list_with(&istio(false));
    let node =
        Node::new(&[("10-a.conflist", &text), ("istio-cni.conf", &istio(false)), ("20-b.conf", SINGLE)]);
    let bytes = write_program(&node);
    std::fs::create_dir(node.net.join("cluster")).unwrap();
    node.write("cluster/50-istio-cni.conf", &istio(true));
    let output = node.uninstall(&["--binary"]);
    for part in [
        "left: ",
        "/10-a.conflist: an entry of type istio-cni that is not ours, in sidecar mode\n",
        "/istio-cni.conf: a configuration of type istio-cni that is not ours, in sidecar mode\n",
        "/cluster/50-istio-cni.conf: a configuration of type istio-cni that is not ours, in ambient mode\n",
        "/bin/istio-cni: a program that is not ours\n",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(!output.contains("changed: "), "{output}");
    assert_eq!((node.read("10-a.conflist"), node.read("istio-cni.conf")), (text, istio(false)));
    assert_eq!(node.read("cluster/50-istio-cni.conf"), istio(true));
    assert!(std::fs::read(node.bin.join("istio-cni")).unwrap() == bytes);

    // Ours beside Istio's.
    let ours = r#"{"type": "istio-cni", "capabilities": {"io.kubernetes.cri.pod-annotations": true}}"#;
    let both = list_with(&format!("{ours}, {}", istio(false)));
    let node = Node::with_program(&[("10-a.conflist", &both)]);
    let output = node.uninstall(&[]);
    assert_eq!(node.read("10-a.conflist"), both.replace(&format!("\n    {ours},"), ""), "{output}");
}

/// Istio's agent comes later: it takes our entry for its own, and replaces it.
#[test]
fn agent_is_not_ready_while_istio_has_the_entry() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let text = list_with(&istio(true));
    node.write("new", &text);
    std::fs::rename(node.net.join("new"), node.net.join("10-a.conflist")).unwrap();
    agent.readyz_is("/10-a.conflist: an entry of type istio-cni that is not ours, in ambient mode");
    assert_eq!(node.read("10-a.conflist"), text);
    node.write("new", LIST);
    std::fs::rename(node.net.join("new"), node.net.join("10-a.conflist")).unwrap();
    agent.readyz_is("HTTP/1.1 200 ");
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    agent.end();
}

/// Istio's agent and ours write, again and again: the entry, and the program after each event.
#[test]
fn agent_of_istio_that_writes_too_is_reported_and_delayed() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add", "--replace-istio"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let overwrite = || {
        for (path, text) in [
            (node.net.join("10-a.conflist"), list_with(&istio(false))),
            (node.bin.join("istio-cni"), "#!/bin/sh\nexit 1\n".to_owned()),
        ] {
            let new = path.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &path).unwrap();
        }
    };
    overwrite();
    let mut writes = 0;
    loop {
        let line = agent.logged("another program ");
        let text = line["msg"].as_str().unwrap();
        // What is written between two looks is named by the next.
        let is_named = line["writer"] == "Istio's agent";
        if is_named && text.contains("delayed") && line["delay_s"].as_f64().unwrap() > 3.0 {
            break;
        }
        if text.contains("written again") {
            writes += 1;
            assert!(writes < 20, "not delayed");
            overwrite();
        }
    }
    agent.readyz_is("Istio's agent");
    agent.readyz_is("HTTP/1.1 200 ");
    agent.end();
}
