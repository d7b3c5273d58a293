//! `--cni-conf-name`: the runtime uses another file than the first.

use super::agent::Agent;
use super::node::{LIST, Node, SINGLE};

const NAMED: [&str; 2] = ["--no-dry-add", "--cni-conf-name=20-b.conflist"];

#[test]
fn named_configuration_has_the_entry_whichever_is_the_first() {
    let node = Node::with_program(&[("10-a.conflist", LIST), ("20-b.conflist", LIST)]);
    node.install(&["--no-dry-add", "--cni-conf-name="]);
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    node.install(&NAMED);
    assert_eq!(node.read("10-a.conflist"), LIST, "a list that the runtime does not use");
    assert_eq!(node.types("20-b.conflist"), ["bridge", "portmap", "istio-cni"]);
    let inode = node.inode("20-b.conflist");
    node.install(&NAMED);
    assert_eq!(node.inode("20-b.conflist"), inode);
    let status = |options: &[&str]| String::from_utf8(node.run("status", options).stdout).unwrap();
    assert!(status(&NAMED[1..]).contains("/net.d/20-b.conflist\n"), "{}", status(&NAMED[1..]));
    assert!(status(&[]).starts_with("not installed: "), "{}", status(&[]));
    node.install(&[&NAMED[..], &["--drop-in=yes"]].concat());
    assert_eq!((node.read("10-a.conflist"), node.read("20-b.conflist")), (LIST.to_owned(), LIST.to_owned()));
    assert!(node.net.join("cluster/50-istio-cni.conf").exists());
    node.install(&NAMED);
    node.uninstall(&[]);
    assert_eq!(node.read("20-b.conflist"), LIST);
}

#[test]
fn named_single_configuration_is_converted() {
    let node = Node::with_program(&[("10-a.conflist", LIST), ("20-b.conf", SINGLE)]);
    let options = ["--no-dry-add", "--cni-conf-name=20-b.conf"];
    node.install(&options);
    assert_eq!(node.types("20-b-istio.conflist"), ["bridge", "istio-cni"]);
    let inode = node.inode("20-b-istio.conflist");
    node.install(&options);
    assert_eq!((node.inode("20-b-istio.conflist"), node.read("10-a.conflist")), (inode, LIST.to_owned()));
    node.uninstall(&[]);
    assert_eq!(node.names(), ["10-a.conflist", "20-b.conf"]);
}

#[test]
fn named_configuration_is_waited_for_and_kept() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &NAMED);
    agent.readyz_is("(no file), expected 20-b.conflist of --cni-conf-name");
    assert_eq!(node.read("10-a.conflist"), LIST);
    node.replace("20-b.conflist", LIST);
    agent.readyz_is("HTTP/1.1 200 ");
    // Neither a new first file nor an invalid one matters.
    node.replace("05-c.conflist", LIST);
    node.replace("06-d.conflist", "{");
    node.replace("20-b.conflist", LIST);
    agent.logged("another program changed the configuration: entry written again");
    assert_eq!(node.types("20-b.conflist"), ["bridge", "portmap", "istio-cni"]);
    assert_eq!(node.read("05-c.conflist"), LIST);
    agent.end();
}

#[test]
fn name_that_libcni_does_not_read_is_refused() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    for name in ["cluster", "../10-a.conflist", "/etc/cni/net.d/10-a.conflist", "10-a.conflist.bak"] {
        let output = node.run("install", &["--once", &format!("--cni-conf-name={name}")]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{name}: {error}");
        let expected = format!("--cni-conf-name: {name:?} is not accepted, expected the name of a file");
        assert!(error.starts_with(&expected), "{error}");
    }
    let platform = ["--once", "--platform=openshift", NAMED[1]];
    node.fails("install", &platform, "--cni-conf-name: not accepted with --platform=openshift");
}
