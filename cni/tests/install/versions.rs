//! The list's `cniVersion`, which is that of the network plugin and may change.

use super::agent::Agent;
use super::node::{LIST, Node};
use super::reader::Reader;

/// In each, every ADD by our plugin fails. What the agent says of it.
const UNSUPPORTED: [(&str, &str); 3] =
    [("9.9.9", "[\"9.9.9\"] is not accepted"), ("0.2.0", "[\"0.2.0\"] is not accepted"), ("", "missing")];

fn of_version(text: &str, version: &str) -> String {
    text.replace("\"cniVersion\": \"1.0.0\"", &format!("\"cniVersion\": \"{version}\""))
}

#[test]
fn entry_is_removed_from_a_list_whose_version_is_no_longer_supported() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let reader = Reader::start(node.net.clone());
    for (version, problem) in UNSUPPORTED {
        let with_entry = node.read("10-a.conflist");
        assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
        node.replace("10-a.conflist", &of_version(&with_entry, version));
        let line = agent.logged("entry removed: every ADD on the node would fail");
        assert!(line["file"].as_str().unwrap().ends_with("/10-a.conflist"), "{line}");
        agent.readyz_is(&format!("cniVersion: {problem}, expected one of 0.3.0"));
        agent.readyz_is("pods start without capture");
        assert_eq!(node.read("10-a.conflist"), of_version(LIST, version));
        // The agent is not needed for pods to start from now on.
        node.replace("10-a.conflist", LIST);
        agent.logged("entry written and read back");
        agent.readyz_is("HTTP/1.1 200 ");
        assert_eq!(node.read("10-a.conflist"), with_entry);
    }
    reader.wait();
    reader.finish();
    agent.end();
}

#[test]
fn drop_in_file_is_removed_beside_a_list_whose_version_is_not_supported_any_more() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add", "--drop-in=yes"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let file = node.net.join("cluster/50-istio-cni.conf");
    assert!(file.exists());
    node.replace("10-a.conflist", &of_version(LIST, "9.9.9"));
    agent.readyz_is("pods start without capture");
    assert!(!file.exists());
    node.replace("10-a.conflist", LIST);
    agent.readyz_is("HTTP/1.1 200 ");
    assert!(file.exists());
    agent.end();
}
