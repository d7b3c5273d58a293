//! DEL and GC: what is left of pods that end.

use serde_json::{Value, json};

use crate::common::{INJECTED, Pod, call, plugin};
use crate::runtime::Node;

#[test]
fn pod_is_deleted_twice_and_without_its_namespace() {
    let node = Node::new("nftables");
    let pod = Pod::new("deleted", &[INJECTED]);
    let result = node.add(&pod);
    assert_eq!(node.state(), ["deleted.eth0.json"]);
    for _ in 0..2 {
        node.delete(&pod, &result);
        assert!(node.state().is_empty());
    }
    node.add(&pod);
    let mut input = node.configuration();
    input["prevResult"] = result;
    let variables = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "deleted"), ("CNI_IFNAME", "eth0")];
    let without_netns = call(plugin(), &variables, input.to_string().as_bytes());
    assert_eq!(without_netns.printed(), "");
    assert!(node.state().is_empty());
}

#[test]
fn gc_keeps_the_state_of_valid_attachments() {
    let node = Node::new("nftables");
    let pods = ["stays", "goes"].map(|name| Pod::new(name, &[INJECTED]));
    for pod in &pods {
        node.add(pod);
    }
    let gc = |name: &str, valid: &Value| {
        let mut input = node.configuration();
        input["name"] = json!(name);
        input["cni.dev/valid-attachments"] = valid.clone();
        call(plugin(), &[("CNI_COMMAND", "GC")], input.to_string().as_bytes())
    };
    let valid = json!([{"containerID": "stays", "ifname": "eth0"}]);
    assert_eq!(gc("another network", &json!([])).printed(), "");
    assert_eq!(node.state(), ["goes.eth0.json", "stays.eth0.json"]);
    assert_eq!(gc("pods", &valid).printed(), "");
    assert_eq!(node.state(), ["stays.eth0.json"]);
    let mut without_list = node.configuration();
    without_list["name"] = json!("pods");
    call(plugin(), &[("CNI_COMMAND", "GC")], without_list.to_string().as_bytes()).error(7);
    assert_eq!(node.state(), ["stays.eth0.json"]);
    // As libcni writes it where no pod is left.
    assert_eq!(gc("pods", &Value::Null).printed(), "");
    assert!(node.state().is_empty());
}
