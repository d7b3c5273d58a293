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
