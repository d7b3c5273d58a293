//! Which file is edited, and how.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use istio_cni::install::platform::Platform;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use serde_json::Value;

use super::node::{LIST, Node, SINGLE, names};

const FAST: [&str; 1] = ["--no-dry-add"];

#[test]
fn first_valid_file_is_edited_and_all_other_bytes_stay() {
    let node = Node::with_program(&[("10-a.conflist", LIST), ("20-b.conflist", LIST)]);
    node.write_old("05-broken.conflist", "{");
    std::fs::set_permissions(node.net.join("10-a.conflist"), std::fs::Permissions::from_mode(0o640)).unwrap();
    node.install(&FAST);
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    assert_eq!(node.read("20-b.conflist"), LIST);
    let text = node.read("10-a.conflist");
    let (before, behind) = LIST.split_at(LIST.find("true}}").unwrap() + "true}}".len());
    assert!(text.starts_with(before) && text.ends_with(behind), "{text}");
    assert_eq!(std::fs::metadata(node.net.join("10-a.conflist")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(node.names(), ["05-broken.conflist", "10-a.conflist", "20-b.conflist"]);
}

#[test]
fn second_installation_writes_nothing_and_another_option_replaces_the_entry() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&FAST);
    let (inode, text) = (node.inode("10-a.conflist"), node.read("10-a.conflist"));
    let program = std::fs::metadata(node.bin.join("istio-cni")).unwrap().ino();
    node.install(&FAST);
    assert_eq!((node.inode("10-a.conflist"), node.read("10-a.conflist")), (inode, text));
    assert_eq!(std::fs::metadata(node.bin.join("istio-cni")).unwrap().ino(), program);
    node.install(&["--no-dry-add", "--exclude-namespaces=a, b", "--backend=nftables"]);
    let text = node.read("10-a.conflist");
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    assert!(
        text.contains(r#""exclude_namespaces":["a","b"]"#) && text.contains(r#""backend":"nftables""#),
        "{text}"
    );
    node.uninstall(&[]);
    assert_eq!(node.read("10-a.conflist"), LIST);
}

#[test]
fn list_that_libcni_rejects_is_skipped_and_named() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    let rejected = r#"{"cniVersion":"1.0.0","name":"x","disableCheck":1,"plugins":[{"type":"bridge"}]}"#;
    node.write_old("05-b.conflist", rejected);
    let output = node.run("install", &["--once", "--no-dry-add"]);
    let text = String::from_utf8_lossy(&output.stderr);
    let problem = "05-b.conflist: disableCheck: 1 is not accepted, expected true or false";
    assert!(output.status.success() && text.contains(problem), "{text}");
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    assert_eq!(node.read("05-b.conflist"), rejected);
}

/// In first place there is no `prevResult`: every ADD on the node would fail.
#[test]
fn entry_in_first_place_is_moved_or_named() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&FAST);
    let found: Value = serde_json::from_str(&node.read("10-a.conflist")).unwrap();
    let found = found["plugins"][2].to_string();
    let list = |plugins: &str| format!("{{\"cniVersion\":\"1.0.0\",\"name\":\"x\",\"plugins\":[{plugins}]}}");
    node.write("10-a.conflist", &list(&format!("{found},{{\"type\":\"bridge\"}}")));
    node.install(&FAST);
    assert_eq!(node.types("10-a.conflist"), ["bridge", "istio-cni"]);
    node.write("10-a.conflist", &list(&found));
    node.fails("install", &["--once", "--no-dry-add"], "10-a.conflist: plugins: istio-cni is the only one");
}

/// Every ADD on the node would fail.
#[test]
fn option_that_the_plugin_refuses_is_not_written() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&FAST);
    let (inode, text) = (node.inode("10-a.conflist"), node.read("10-a.conflist"));
    for (option, value, accepted) in [
        ("--backend", "foo", "expected auto, iptables, iptables-nft, iptables-legacy or nftables"),
        ("--deadline-ms", "0", "expected 1 to 240000"),
        ("--deadline-ms", "999999999", "expected 1 to 240000"),
        ("--capture", r#"{"uid":"x"}"#, "uid: \"x\" is not accepted, expected a number from 0 to"),
        (
            "--capture",
            r#"{"uid":4294967295}"#,
            "uid: 4294967295 is not accepted, expected a number from 0 to",
        ),
        (
            "--capture",
            r#"{"bogus":1}"#,
            "key \"bogus\" is not accepted, expected dns, dual_stack, uid or gid",
        ),
        ("--capture", "[]", "[] is not accepted, expected an object with dns"),
    ] {
        let output = node.run("install", &["--once", "--no-dry-add", &format!("{option}={value}")]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{option}={value}: {error}");
        assert!(error.starts_with(&format!("{option}: ")) && error.contains(accepted), "{option}: {error}");
        assert_eq!(
            (node.inode("10-a.conflist"), node.read("10-a.conflist")),
            (inode, text.clone()),
            "{option}"
        );
    }
}

#[test]
fn single_configuration_is_converted_and_comes_back() {
    for name in ["10-a.conf", "10-a.json"] {
        let node = Node::with_program(&[(name, SINGLE)]);
        node.install(&FAST);
        assert_eq!(node.names(), ["10-a-istio.conflist".to_owned(), format!("{name}.istio-cni-backup")]);
        assert_eq!(node.types("10-a-istio.conflist"), ["bridge", "istio-cni"]);
        assert!(node.read("10-a-istio.conflist").contains(SINGLE.trim()));
        let inode = node.inode("10-a-istio.conflist");
        node.install(&FAST);
        assert_eq!(node.inode("10-a-istio.conflist"), inode);
        // The network plugin writes a new one.
        let newer = SINGLE.replace("1.50e3", "9000");
        node.write(name, &newer);
        node.install(&FAST);
        assert!(node.read("10-a-istio.conflist").contains("9000"));
        node.uninstall(&[]);
        assert_eq!((node.names(), node.read(name)), (vec![name.to_owned()], newer));
    }
}

/// Go's `encoding/json` refuses it: the runtime skips the list.
#[test]
fn list_beyond_the_limits_of_go_is_passed_over() {
    for (value, problem) in [
        ("1e999".to_owned(), "1e999 is not accepted, expected a number"),
        (format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)), "nested deeper than 10000"),
    ] {
        let node = Node::with_program(&[("10-b.conflist", LIST)]);
        let list = LIST.replace("\"mtu\": 1.50e3", &format!("\"mtu\": {value}"));
        node.write_old("05-a.conflist", &list);
        let output = node.run("install", &["--once", "--no-dry-add"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains(problem), "{text}");
        assert_eq!(node.read("05-a.conflist"), list);
        assert_eq!(node.types("10-b.conflist"), ["bridge", "portmap", "istio-cni"]);
    }
}

#[test]
fn converted_list_that_was_changed_since_is_kept() {
    let node = Node::with_program(&[("10-a.conf", SINGLE)]);
    node.install(&FAST);
    let changed = node.read("10-a-istio.conflist").replace("\n  ]", ",\n{\"type\":\"tuning\"}\n  ]");
    node.write("10-a-istio.conflist", &changed);
    node.uninstall(&[]);
    assert_eq!(node.types("10-a-istio.conflist"), ["bridge", "tuning"]);
    assert_eq!(node.names(), ["10-a-istio.conflist", "10-a.conf.istio-cni-backup"]);
}

#[test]
fn drop_in_file_leaves_the_list_as_it_is() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&FAST);
    node.install(&["--no-dry-add", "--drop-in=yes"]);
    assert_eq!(node.read("10-a.conflist"), LIST, "the entry moves");
    assert_eq!(names(&node.net.join("cluster")), ["50-istio-cni.conf"]);
    assert!(node.read("cluster/50-istio-cni.conf").contains(r#""type":"istio-cni""#));
    let inode = node.inode("cluster/50-istio-cni.conf");
    node.install(&["--no-dry-add", "--drop-in=yes"]);
    assert_eq!(node.inode("cluster/50-istio-cni.conf"), inode);
    node.install(&FAST);
    assert_eq!(node.names(), ["10-a.conflist"], "the entry moves back: libcni would load both");
    node.install(&["--no-dry-add", "--drop-in=yes"]);
    node.uninstall(&[]);
    assert_eq!(node.names(), ["10-a.conflist"]);
    for (text, problem) in [
        (
            LIST.replace("\"name\":", "\"loadOnlyInlinedPlugins\": true, \"name\":"),
            "loadOnlyInlinedPlugins is true",
        ),
        (LIST.replace("\"cluster\"", "\"a/b\""), "is not a valid directory name"),
    ] {
        node.write("10-a.conflist", &text);
        node.fails("install", &["--once", "--drop-in=yes"], problem);
        assert_eq!(node.read("10-a.conflist"), text);
    }
}

/// A runtime with libcni 1.3 uses such a list, an earlier one the next file: the entry in that would be in
/// none.
#[test]
fn list_whose_plugins_are_drop_in_files_is_not_passed_over() {
    let list = r#"{"cniVersion": "1.0.0", "name": "dropped"}"#;
    let node = Node::with_program(&[("10-b.conflist", LIST)]);
    node.write_old("05-a.conflist", list);
    // Without drop-in files no runtime loads it.
    node.install(&FAST);
    assert_eq!(node.types("10-b.conflist"), ["bridge", "portmap", "istio-cni"]);
    std::fs::create_dir(node.net.join("dropped")).unwrap();
    node.write("dropped/10-bridge.conf", r#"{"type": "bridge"}"#);
    node.fails("install", &["--once", "--no-dry-add"], "05-a.conflist: its plugins are drop-in files");
    assert_eq!(node.types("10-b.conflist"), ["bridge", "portmap", "istio-cni"], "an earlier one uses that");
    node.install(&["--no-dry-add", "--drop-in=yes"]);
    assert_eq!(names(&node.net.join("dropped")), ["10-bridge.conf", "50-istio-cni.conf"]);
    assert_eq!(node.read("05-a.conflist"), list);
    assert_eq!(node.read("10-b.conflist"), LIST, "the entry moves");
    node.install(&["--no-dry-add", "--drop-in=yes"]);
    node.uninstall(&[]);
    assert_eq!(names(&node.net.join("dropped")), ["10-bridge.conf"]);
    assert_eq!(node.read("05-a.conflist"), list);
}

/// Plugins of other types than the runtime can read: it skips the list.
#[test]
fn list_with_a_field_of_another_type_is_passed_over() {
    let bad = LIST.replace("\"mtu\": 1.50e3", "\"ipam\": \"host-local\"");
    assert_ne!(bad, LIST);
    let node = Node::with_program(&[("10-b.conflist", LIST)]);
    node.write_old("05-a.conflist", &bad);
    node.install(&FAST);
    assert_eq!(node.read("05-a.conflist"), bad);
    assert_eq!(node.types("10-b.conflist"), ["bridge", "portmap", "istio-cni"]);
}

/// Runtimes watch the directory, and none in it: containerd reads the configuration again when a file of any
/// name is written, renamed or removed there, CRI-O when one is made, written or renamed.
#[test]
fn runtimes_read_the_configuration_again_after_a_change_of_the_drop_in_file() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    std::fs::create_dir(node.net.join("cluster")).unwrap();
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    let [made, written, removed] =
        [AddWatchFlags::IN_CREATE, AddWatchFlags::IN_MODIFY, AddWatchFlags::IN_DELETE];
    let renamed = AddWatchFlags::IN_MOVED_FROM;
    inotify.add_watch(&node.net, made | written | removed | renamed).unwrap();
    let network = inotify.add_watch(&node.net.join("cluster"), made | AddWatchFlags::IN_MOVED_TO | removed);
    let network = network.unwrap();
    let is_read_again = || {
        let mut events = Vec::new();
        while let Ok(more) = inotify.read_events() {
            events.extend(more);
        }
        let changes = |event: &InotifyEvent| {
            event.wd == network && event.name.as_deref() == Some("50-istio-cni.conf".as_ref())
        };
        let last = events.iter().rposition(changes).expect("a change of the drop-in file");
        let later = &events[last + 1..];
        for wanted in [written | removed | renamed, made | written | renamed] {
            assert!(
                later.iter().any(|event| event.wd != network && wanted.intersects(event.mask)),
                "{events:?}"
            );
        }
    };
    node.install(&["--no-dry-add", "--drop-in=yes"]);
    is_read_again();
    node.install(&["--no-dry-add", "--drop-in=yes", "--on-unknown=pass"]);
    is_read_again();
    node.uninstall(&[]);
    is_read_again();
}

/// Multus makes its configuration of the first other one, to which it delegates: with the entry there,
/// `istio-cni` would be called twice, by multus without annotations.
#[test]
fn entry_moves_to_the_configuration_of_multus() {
    let multus = |network: &str| {
        format!(
            r#"{{"capabilities":{{"portMappings":true}},"cniVersion":"1.0.0","name":"multus-cni-network","clusterNetwork":"{network}","readinessindicatorfile":"/etc/cni/net.d/10-a.conflist","type":"multus-shim"}}"#
        )
    };
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&FAST);
    // Written in place, readable by root only; again when the other network changes, and when multus starts.
    for network in ["/host/etc/cni/net.d/10-a.conflist", "/host/etc/cni/net.d/10-b.conflist"] {
        node.write("00-multus.conf", &multus(network));
        std::fs::set_permissions(node.net.join("00-multus.conf"), std::fs::Permissions::from_mode(0o600))
            .unwrap();
        node.install(&FAST);
        assert_eq!(node.types("00-multus-istio.conflist"), ["multus-shim", "istio-cni"]);
        assert!(node.read("00-multus-istio.conflist").contains(network));
        assert_eq!(
            std::fs::metadata(node.net.join("00-multus-istio.conflist")).unwrap().mode() & 0o7777,
            0o600
        );
        assert_eq!(node.read("10-a.conflist"), LIST);
        let names = ["00-multus-istio.conflist", "00-multus.conf.istio-cni-backup", "10-a.conflist"];
        assert_eq!(node.names(), names);
    }
    node.uninstall(&[]);
    assert_eq!(node.names(), ["00-multus.conf", "10-a.conflist"]);
    assert_eq!(node.read("00-multus.conf"), multus("/host/etc/cni/net.d/10-b.conflist"));
    assert_eq!(node.read("10-a.conflist"), LIST);
}

#[test]
fn configuration_for_multus_is_a_file_of_its_own() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--platform=openshift"]);
    assert!(node.read("istio-cni.conf").contains(r#""standalone":true"#));
    assert_eq!(node.read("10-a.conflist"), LIST);
    node.uninstall(&["--platform=openshift"]);
    assert_eq!(node.names(), ["10-a.conflist"]);
}

#[test]
fn what_cannot_be_edited_is_reported_and_left() {
    let node = Node::with_program(&[]);
    let problem = "no valid network configuration in";
    node.fails("install", &["--once"], problem);
    node.fails("install", &["--once"], "or name its directory with --net-dir");
    node.write_old("10-a.conflist", "{\"name\": \"x\", \"plugins\": []}");
    node.fails(
        "install",
        &["--once"],
        "let the network plugin write it again, or correct or remove the file",
    );
    node.fails("install", &["--once"], "10-a.conflist: plugins: empty");
    let outside = node.path("outside.conflist");
    std::fs::write(&outside, LIST).unwrap();
    std::fs::remove_file(node.net.join("10-a.conflist")).unwrap();
    symlink(&outside, node.net.join("10-a.conflist")).unwrap();
    node.fails("install", &["--once"], "outside of the directory");
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), LIST);
    node.write("05-nameless.conf", r#"{"cniVersion": "1.0.0", "type": "bridge"}"#);
    node.fails("install", &["--once"], "05-nameless.conf: missing name");
}

#[test]
fn failed_test_run_of_add_is_an_error_with_the_plugins_message() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&[]);
    assert_eq!(names(&node.run.join("state")), [""; 0], "the test run leaves no state");
    std::fs::remove_dir(node.run.join("state")).unwrap();
    std::fs::write(node.run.join("state"), "").unwrap();
    let problem = "test run of ADD in a temporary network namespace: cannot write ";
    node.fails("install", &["--once"], problem);
}

#[test]
fn arguments_are_checked() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    for (options, problem) in [
        (["--kubeconfig=/x"], "--kubeconfig: not accepted without --node-name"),
        (["--node-name=a"], "--node-name: not supported by this program"),
        (
            ["--node-name=$(NODE_NAME)"],
            "--node-name: \"$(NODE_NAME)\" is not accepted, expected the name of a node",
        ),
        (["--node-name="], "--node-name: \"\" is not accepted"),
        (["--platform=x"], format!("expected one of {}", Platform::accepted()).as_str()),
        (["--drop-in=maybe"], "expected one of auto, yes, no"),
        (["--bogus"], "unknown argument"),
        (["--listen=x"], "expected an IP address and a port"),
        (
            ["--listen=:18123"],
            "--listen: \":18123\" is not accepted, expected an IP address and a port, such as [::]:8000",
        ),
        (["--once=1"], "expected true, false or no value"),
        (["--capture={"], "expected a JSON object"),
        (["--deadline-ms=x"], "expected a number"),
    ] {
        node.fails("install", &options, problem);
    }
    assert_eq!(node.read("10-a.conflist"), LIST);
}

/// Libcni, in Go, loads the first list, and reads half of a surrogate pair as U+FFFD.
#[test]
fn list_with_a_lone_surrogate_has_the_entry_as_the_runtime_uses_it() {
    for (from, to) in [("\"cluster\"", "\"cluster\\ud800\""), ("\"bridge\"", "\"bridge\", \"\\udc00\": 1")] {
        let text = LIST.replace(from, to);
        let node = Node::with_program(&[("20-b.conflist", LIST)]);
        node.write_old("10-a.conflist", &text);
        node.install(&["--no-dry-add"]);
        assert!(node.read("10-a.conflist").contains("istio-cni"), "{text}");
        assert_eq!(node.read("20-b.conflist"), LIST, "{text}");
        node.uninstall(&[]);
        assert_eq!(node.read("10-a.conflist"), text);
    }
}

/// An entry in the next file would have no effect with these.
#[test]
fn list_that_earlier_versions_of_libcni_load_is_not_skipped() {
    for field in [r#""disableGC": 1"#, r#""loadOnlyInlinedPlugins": "yes""#, r#""cniVersions": "1.0.0""#] {
        let text = LIST.replace(r#""cniVersion""#, &format!(r#"{field}, "cniVersion""#));
        let node = Node::with_program(&[("20-b.conflist", LIST)]);
        node.write_old("10-a.conflist", &text);
        node.fails(
            "install",
            &["--once", "--no-dry-add"],
            "with which earlier versions of libcni load the file",
        );
        assert_eq!(
            (node.read("10-a.conflist"), node.read("20-b.conflist").as_str()),
            (text, LIST),
            "{field}"
        );
    }
}
