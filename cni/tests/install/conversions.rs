//! Conversions where other programs' files have the names of the backup or of the list.

use std::os::unix::fs::symlink;

use super::node::{LIST, Node, SINGLE};

const FAST: [&str; 1] = ["--no-dry-add"];

#[test]
fn files_of_others_with_the_names_of_a_conversion_stay() {
    for name in ["10-a.conf", "10-a.json"] {
        let foreign = format!("{name}.istio-cni-backup");
        for text in ["precious", "", LIST, &SINGLE.replace("bridge", "ptp")] {
            let node = Node::with_program(&[(name, SINGLE), (&foreign, text)]);
            let installed = ["10-a-istio.conflist".to_owned(), foreign.clone(), format!("{foreign}.1")];
            node.install(&FAST);
            assert_eq!(node.names(), installed, "{text}");
            let newer = SINGLE.replace("1.50e3", "9000");
            node.write(name, &newer);
            node.install(&FAST);
            assert_eq!(node.names(), installed, "{text}");
            assert!(node.read("10-a-istio.conflist").contains("9000"));
            assert_eq!(node.read(&foreign), text);
            node.uninstall(&[]);
            assert_eq!(node.names(), [name, &foreign], "{text}");
            assert_eq!((node.read(name), node.read(&foreign).as_str()), (newer, text));
        }
        // A directory, and a link to nothing.
        let node = Node::with_program(&[(name, SINGLE)]);
        std::fs::create_dir(node.net.join(&foreign)).unwrap();
        symlink("nowhere", node.net.join(format!("{foreign}.1"))).unwrap();
        node.install(&FAST);
        assert_eq!(node.read(&format!("{foreign}.2")), SINGLE);
        node.uninstall(&[]);
        assert_eq!(node.names(), [name, &foreign, &format!("{foreign}.1")]);
        assert_eq!(node.read(name), SINGLE);
        // The list's name.
        let node = Node::with_program(&[(name, SINGLE)]);
        node.write_old("10-a-istio.conflist", "precious");
        node.fails("install", &["--once", "--no-dry-add"], "10-a-istio.conflist: not ours");
        assert_eq!(
            (node.read("10-a-istio.conflist").as_str(), node.read(name).as_str()),
            ("precious", SINGLE)
        );
        node.uninstall(&[]);
        assert_eq!(node.names(), ["10-a-istio.conflist", name]);
    }
}

/// A lone surrogate and 200 levels are no values of JSON libraries that refuse half of a surrogate pair and
/// more than 128 levels.
#[test]
fn configuration_with_a_lone_surrogate_or_many_levels_comes_back() {
    let deep = format!(
        r#"{{"cniVersion":"1.0.0","name":"a","type":"bridge","x":{}{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    for text in [deep.as_str(), r#"{"cniVersion":"1.0.0","name":"a","type":"bridge","comment":"\ud800"}"#] {
        let node = Node::with_program(&[("10-a.conf", text)]);
        node.install(&FAST);
        let installed = ["10-a-istio.conflist", "10-a.conf.istio-cni-backup"];
        assert_eq!(node.names(), installed);
        // As a program does that restores it: a conversion each time would be a loop.
        node.write("10-a.conf", text);
        let inode = node.inode("10-a-istio.conflist");
        node.install(&FAST);
        assert_eq!(node.inode("10-a-istio.conflist"), inode);
        std::fs::remove_file(node.net.join("10-a.conf")).unwrap();
        node.uninstall(&[]);
        assert_eq!((node.names(), node.read("10-a.conf").as_str()), (vec!["10-a.conf".to_owned()], text));
    }
}

/// Libcni finds fields of a single configuration whatever the case of their keys.
#[test]
fn keys_of_a_single_configuration_may_have_any_case() {
    let text = r#"{"CNIVERSION":"1.0.0","Name":"a","TYPE":"bridge"}"#;
    let node = Node::with_program(&[("10-a.conf", text)]);
    node.install(&FAST);
    let list: serde_json::Value = serde_json::from_str(&node.read("10-a-istio.conflist")).unwrap();
    assert_eq!((&list["cniVersion"], &list["name"]), (&"1.0.0".into(), &"a".into()));
    node.uninstall(&[]);
    assert_eq!((node.names(), node.read("10-a.conf").as_str()), (vec!["10-a.conf".to_owned()], text));
    let old = text.replace("1.0.0", "0.1.0");
    let node = Node::with_program(&[("10-a.conf", &old)]);
    node.fails("install", &["--once", "--no-dry-add"], "is not accepted, expected one of 0.3.0");
}
