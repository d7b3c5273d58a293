//! Removal: the entry, the state, and the program only when nothing names it.

use super::node::{LIST, Node, SINGLE, names};

/// A cached result as libcni writes it; its configuration names the plugin, in Base64.
const CACHED: &str = r#"{"kind":"cniCacheV1","containerId":"x","config":"eyJuYW1lIjoibmV0IiwicGx1Z2lucyI6W3sidHlwZSI6ImJyaWRnZSJ9LHsidHlwZSI6ImlzdGlvLWNuaSJ9XX0=","ifName":"eth0"}"#;

#[test]
fn program_stays_while_anything_names_it() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    node.install(&[]);
    std::fs::write(node.run.join("state/x.eth0.json"), "{}").unwrap();
    let results = node.path("results");
    std::fs::create_dir(&results).unwrap();
    std::fs::write(results.join("cluster-x-eth0"), CACHED).unwrap();
    std::fs::write(results.join("cluster-y-eth0"), r#"{"config":"eyJ0eXBlIjoiYnJpZGdlIn0="}"#).unwrap();
    // Only multus could use it: not first, and not a list.
    node.write("90-other.conf", r#"{"name": "other", "type": "istio\u002dcni"}"#);
    let option = format!("--results-dir={}", results.display());
    let output = node.run("uninstall", &["--binary", &option]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text.matches("program kept, named by: ").count(), 2, "{text}");
    assert!(text.contains("/90-other.conf\n") && text.contains("/cluster-x-eth0\n"), "{text}");
    assert_eq!((node.read("10-a.conflist").as_str(), names(&node.bin)), (LIST, vec!["istio-cni".to_owned()]));
    assert!(!node.run.join("state").exists());
    std::fs::remove_file(results.join("cluster-x-eth0")).unwrap();
    std::fs::remove_file(node.net.join("90-other.conf")).unwrap();
    node.uninstall(&[&option]);
    assert_eq!(names(&node.bin), ["istio-cni"], "without --binary");
    assert!(node.uninstall(&["--binary", &option]).contains("bin/istio-cni"));
    assert_eq!(names(&node.bin), [""; 0]);
    node.uninstall(&["--binary", &option]);
}

#[test]
fn entry_is_removed_from_every_list_and_changes_of_others_stay() {
    let node = Node::with_program(&[("10-a.conflist", LIST), ("20-b.conf", SINGLE)]);
    node.install(&["--no-dry-add"]);
    // Another network plugin takes the first place, with a list that is edited, too.
    node.write("05-c.conflist", LIST);
    node.install(&["--no-dry-add"]);
    let changed = node.read("10-a.conflist").replace("1.50e3", "9000");
    node.write("10-a.conflist", &changed);
    node.uninstall(&[]);
    assert_eq!(node.read("05-c.conflist"), LIST);
    assert_eq!(node.read("10-a.conflist"), LIST.replace("1.50e3", "9000"));
    assert_eq!(node.read("20-b.conf"), SINGLE);
}

#[test]
fn list_of_nothing_else_is_refused() {
    let entry = r#"{"type":"istio-cni","capabilities":{"io.kubernetes.cri.pod-annotations":true}}"#;
    let node = Node::with_program(&[("10-a.conflist", &format!(r#"{{"name":"x","plugins":[{entry}]}}"#))]);
    node.fails("uninstall", &[], "istio-cni is the only one");
}

/// As after `kubeadm reset`, which removes the directory.
#[test]
fn uninstall_succeeds_without_the_directory_of_configurations() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    std::fs::remove_dir_all(&node.net).unwrap();
    let option = format!("--results-dir={}", node.path("results").display());
    assert!(node.uninstall(&["--binary", &option]).contains("bin/istio-cni"));
    assert_eq!(names(&node.bin), [""; 0]);
    assert!(!node.run.join("state").exists());
    node.uninstall(&["--binary", &option]);
}

/// Cilium renames other programs' configurations. One that comes back needs the program.
#[test]
fn program_stays_while_a_renamed_configuration_names_it() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    std::fs::rename(node.net.join("10-a.conflist"), node.net.join("10-a.conflist.cilium_bak")).unwrap();
    let option = format!("--results-dir={}", node.path("results").display());
    let output = node.run("uninstall", &["--binary", &option]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("program kept, named by: ") && text.contains("10-a.conflist.cilium_bak\n"),
        "{text}"
    );
    assert_eq!(names(&node.bin), ["istio-cni"]);
}

/// What another program has broken does not keep our entry on the node.
#[test]
fn uninstall_takes_the_entry_out_beside_a_file_that_cannot_be_read() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    std::os::unix::fs::symlink("05-loop.conflist", node.net.join("05-loop.conflist")).unwrap();
    node.uninstall(&[]);
    assert_eq!(node.read("10-a.conflist"), LIST);
}
