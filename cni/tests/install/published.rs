//! Configurations in the form in which network plugins write them: ours comes last, all other bytes stay, and
//! removal leaves the file as it was.

use serde_json::Value;

use super::node::Node;

/// File, text, types of its plugins.
const LISTS: [(&str, &str, &[&str]); 8] = [
    (
        "10-calico.conflist",
        "{\n  \"name\": \"k8s-pod-network\",\n  \"cniVersion\": \"0.3.1\",\n  \"plugins\": [\n    {\n      \"type\": \"calico\",\n      \
         \"log_level\": \"info\",\n      \"log_file_path\": \"/var/log/calico/cni/cni.log\",\n      \"datastore_type\": \"kubernetes\",\n      \
         \"nodename\": \"node-1\",\n      \"mtu\": 0,\n      \"ipam\": {\n          \"type\": \"calico-ipam\"\n      },\n      \"policy\": {\n          \
         \"type\": \"k8s\"\n      },\n      \"kubernetes\": {\n          \"kubeconfig\": \"/etc/cni/net.d/calico-kubeconfig\"\n      }\n    },\n    {\n      \
         \"type\": \"portmap\",\n      \"snat\": true,\n      \"capabilities\": {\"portMappings\": true}\n    },\n    {\n      \"type\": \"bandwidth\",\n      \
         \"capabilities\": {\"bandwidth\": true}\n    }\n  ]\n}",
        &["calico", "portmap", "bandwidth"],
    ),
    (
        "05-cilium.conflist",
        "\n{\n  \"cniVersion\": \"0.3.1\",\n  \"name\": \"cilium\",\n  \"plugins\": [\n    {\n       \"type\": \"cilium-cni\",\n       \
         \"enable-debug\": false,\n       \"log-file\": \"/var/run/cilium/cilium-cni.log\"\n    }\n  ]\n}",
        &["cilium-cni"],
    ),
    (
        "10-flannel.conflist",
        "{\n  \"name\": \"cbr0\",\n  \"cniVersion\": \"0.3.1\",\n  \"plugins\": [\n    {\n      \"type\": \"flannel\",\n      \"delegate\": {\n        \
         \"hairpinMode\": true,\n        \"isDefaultGateway\": true\n      }\n    },\n    {\n      \"type\": \"portmap\",\n      \
         \"capabilities\": {\n        \"portMappings\": true\n      }\n    }\n  ]\n}\n",
        &["flannel", "portmap"],
    ),
    (
        "10-aws.conflist",
        "{\"cniVersion\":\"1.0.0\",\"disableCheck\":true,\"name\":\"aws-cni\",\"plugins\":[{\"mtu\":\"9001\",\"name\":\"aws-cni\",\"pluginLogFile\":\
         \"/var/log/aws-routed-eni/plugin.log\",\"pluginLogLevel\":\"DEBUG\",\"podSGEnforcingMode\":\"strict\",\"type\":\"aws-cni\",\"vethPrefix\":\"eni\"},\
         {\"capabilities\":{\"portMappings\":true},\"snat\":true,\"type\":\"portmap\"}]}",
        &["aws-cni", "portmap"],
    ),
    (
        // Cilium chained behind another network.
        "05-cilium.conflist",
        "{\"cniVersion\":\"0.4.0\",\"name\":\"aws-cni\",\"plugins\":[{\"name\":\"aws-cni\",\"type\":\"aws-cni\",\"mtu\":\"9001\"},\n{\n\t\"type\": \"cilium-cni\",\n\t\
         \"chaining-mode\": \"aws-cni\",\n\t\"enable-debug\": false\n}\n]}",
        &["aws-cni", "cilium-cni"],
    ),
    (
        "10-kindnet.conflist",
        "\n{\n\t\"cniVersion\": \"0.3.1\",\n\t\"name\": \"kindnet\",\n\t\"plugins\": [\n\t{\n\t\t\"type\": \"ptp\",\n\t\t\"ipMasq\": false,\n\t\t\"ipam\": {\n\t\t\t\
         \"type\": \"host-local\",\n\t\t\t\"dataDir\": \"/run/cni-ipam-state\",\n\t\t\t\"routes\": [\n\t\t\t\t{ \"dst\": \"0.0.0.0/0\" }\n\t\t\t],\n\t\t\t\"ranges\": [\n\t\t\t\t\
         [ { \"subnet\": \"10.244.0.0/24\" } ]\n\t\t\t]\n\t\t}\n\t\t,\n\t\t\"mtu\": 1500\n\t},\n\t{\n\t\t\"type\": \"portmap\",\n\t\t\"capabilities\": {\n\t\t\t\
         \"portMappings\": true\n\t\t}\n\t}\n\t]\n}\n",
        &["ptp", "portmap"],
    ),
    (
        "10-ovn-kubernetes.conf",
        "{\"cniVersion\":\"0.4.0\",\"name\":\"ovn-kubernetes\",\"type\":\"ovn-k8s-cni-overlay\",\"ipam\":{},\"dns\":{},\"logFile\":\
         \"/var/log/ovn-kubernetes/ovn-k8s-cni-overlay.log\",\"logLevel\":\"4\",\"logfile-maxsize\":100,\"logfile-maxbackups\":5,\"logfile-maxage\":5}",
        &["ovn-k8s-cni-overlay"],
    ),
    (
        "00-multus.conf",
        "{ \"cniVersion\": \"0.3.1\", \"name\": \"multus-cni-network\", \"type\": \"multus\", \"capabilities\": {\"portMappings\": true}, \"kubeconfig\": \
         \"/etc/cni/net.d/multus.d/multus.kubeconfig\", \"delegates\": [ {\"cniVersion\":\"0.3.1\",\"name\":\"k8s-pod-network\",\"plugins\":[{\"type\":\
         \"calico\"},{\"type\":\"portmap\"}]} ] }\n",
        &["multus"],
    ),
];

#[test]
fn configurations_of_network_plugins_come_back_byte_for_byte() {
    for (name, text, types) in LISTS {
        let node = Node::with_program(&[(name, text)]);
        node.install(&["--no-dry-add"]);
        let list = name
            .strip_suffix(".conf")
            .map_or_else(|| name.to_owned(), |stem| format!("{stem}-istio.conflist"));
        assert_eq!(node.types(&list), [types, &["istio-cni"]].concat(), "{name}");
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let (before, after) = (read(text), read(&node.read(&list)));
        for key in ["cniVersion", "name", "disableCheck"] {
            assert!(before.get(key).is_none() || before[key] == after[key], "{name}: {key}");
        }
        if before["plugins"].is_array() {
            let begin = node
                .read(&list)
                .find("{\"type\":\"istio-cni\"")
                .or_else(|| node.read(&list).find("\"istio-cni\""));
            assert!(begin.is_some_and(|begin| begin > text.rfind(types[types.len() - 1]).unwrap()), "{name}");
        }
        node.uninstall(&[]);
        assert_eq!(node.read(name), text, "{name}");
        assert_eq!(node.names(), [name], "{name}");
    }
}

/// Every ADD on the node would fail with error 1, of pods that are not captured, too.
#[test]
fn version_that_the_plugin_does_not_have_is_refused() {
    for (version, shown) in [
        ("\"cniVersion\": \"0.2.0\", ", "[\"0.2.0\"] is not accepted"),
        ("", "missing"),
        ("\"cniVersion\": \"\", ", "missing"),
        ("\"cniVersion\": \"9.0.0\", ", "[\"9.0.0\"] is not accepted"),
        ("\"cniVersions\": [\"0.2.0\", \"9.0.0\"], ", "is not accepted"),
    ] {
        for (name, rest) in [
            ("10-a.conflist", "\"plugins\": [{\"type\": \"bridge\"}]"),
            ("10-a.conf", "\"type\": \"bridge\""),
        ] {
            let text = format!("{{{version}\"name\": \"a\", {rest}}}");
            let node = Node::with_program(&[(name, &text)]);
            let problem = format!("/{name}: cniVersion: ");
            node.fails("install", &["--once", "--no-dry-add"], &problem);
            let output = node.run("install", &["--once", "--no-dry-add"]);
            let log = String::from_utf8(output.stderr).unwrap().replace("\\\"", "\"");
            // Of a single configuration libcni reads no `cniVersions`.
            let is_of_lists = version.contains("cniVersions") && name.ends_with(".conf");
            let shown = if is_of_lists { "missing" } else { shown };
            assert!(log.contains(shown) && log.contains("0.3.0, 0.3.1"), "{log}");
            assert_eq!((node.read(name), node.names()), (text, vec![name.to_owned()]));
        }
    }
    let listed =
        "{\"cniVersions\": [\"0.2.0\", \"1.0.0\"], \"name\": \"a\", \"plugins\": [{\"type\": \"bridge\"}]}";
    Node::with_program(&[("10-a.conflist", listed)]).install(&["--no-dry-add"]);
}
