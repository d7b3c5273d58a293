//! `kill -9` before each system call that changes a file (`INSTALL_KILLS=all`: before each one), while a
//! runtime reads.

use super::kill::{Calls, End, run_and_kill};
use super::node::{LIST, Node, SINGLE};
use super::reader::{Reader, reading, wanted};

/// What a node is set up with.
struct Case {
    file: &'static str,
    text: &'static str,
    options: &'static [&'static str],
    /// Names in the directory after an installation.
    installed: &'static [&'static str],
}

const EDITED: Case =
    Case { file: "10-a.conflist", text: LIST, options: &["--drop-in=no"], installed: &["10-a.conflist"] };
const CONVERTED: Case = Case {
    file: "10-a.conf",
    text: SINGLE,
    options: &[],
    installed: &["10-a-istio.conflist", "10-a.conf.istio-cni-backup"],
};
const DROPPED: Case = Case {
    file: "10-a.conflist",
    text: LIST,
    options: &["--drop-in=yes"],
    installed: &["10-a.conflist", "cluster"],
};

impl Case {
    fn node(&self) -> Node {
        // Sorted behind: what is used if the first file is missing.
        Node::with_program(&[
            (self.file, self.text),
            ("99-other.conf", r#"{"name":"other","type":"loopback"}"#),
        ])
    }

    fn install(&self, node: &Node) {
        node.install(&[self.options, &["--no-dry-add"]].concat());
        let mut names = node.names();
        names.retain(|name| name != "99-other.conf");
        assert_eq!(names, self.installed);
        let drop_in = node.net.join("cluster/50-istio-cni.conf").exists();
        let types = reading(&node.net).unwrap();
        assert!(types.iter().any(|kind| kind == "istio-cni") || drop_in, "{types:?}");
    }

    /// As it was, byte for byte.
    fn uninstall(&self, node: &Node) {
        node.uninstall(&[]);
        assert_eq!(node.names(), [self.file, "99-other.conf"]);
        assert_eq!(node.read(self.file), self.text);
    }
}

fn kill_everywhere(case: &Case) {
    let calls = Calls::of_environment();
    let node = case.node();
    let reader = Reader::start(node.net.clone());
    let install = node.command("install", &[&["--once", "--no-dry-add"], case.options].concat());
    let uninstall = node.command("uninstall", &[]);
    let mut kills = [0, 0];
    for number in 1.. {
        let end = run_and_kill(&install, calls, number);
        reading(&node.net).unwrap_or_else(|problem| panic!("install, call {number}: {problem}"));
        if number % 2 == 0 {
            case.install(&node);
        }
        case.uninstall(&node);
        if end != End::Killed {
            assert_eq!(end, End::Exited(0));
            break;
        }
        kills[0] += 1;
    }
    for number in 1.. {
        case.install(&node);
        let end = run_and_kill(&uninstall, calls, number);
        reading(&node.net).unwrap_or_else(|problem| panic!("uninstall, call {number}: {problem}"));
        if number % 2 == 0 {
            case.install(&node);
        }
        case.uninstall(&node);
        if end != End::Killed {
            assert_eq!(end, End::Exited(0));
            break;
        }
        kills[1] += 1;
    }
    println!("{kills:?} kills of install and uninstall");
    assert!(kills[0] > 5 && kills[1] > 3, "{kills:?}");
    while reader.readings() < wanted() {
        case.install(&node);
        case.uninstall(&node);
    }
    reader.finish();
}

#[test]
fn edited_list_survives_kills_at_every_call() {
    kill_everywhere(&EDITED);
}

#[test]
fn converted_configuration_survives_kills_at_every_call() {
    kill_everywhere(&CONVERTED);
}

#[test]
fn drop_in_file_survives_kills_at_every_call() {
    kill_everywhere(&DROPPED);
}

/// Recognized as ours by the annotation that it reads.
const EARLIER: &str = "#!/bin/sh\necho earlier, reads istio-iptables/capture-options\n";

#[test]
fn program_survives_kills_at_every_call() {
    let calls = Calls::of_environment();
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let program = node.bin.join("istio-cni");
    let options = ["--once", "--no-dry-add"];
    let mut kills = 0;
    for number in 1.. {
        std::fs::write(&program, EARLIER).unwrap();
        let end = run_and_kill(&node.command("install", &options), calls, number);
        let bytes = std::fs::read(&program).unwrap();
        let own = std::fs::metadata(super::node::program()).unwrap().len();
        assert!(bytes.starts_with(EARLIER.as_bytes()) || bytes.len() as u64 == own, "call {number}");
        if end != End::Killed {
            assert_eq!(end, End::Exited(0));
            break;
        }
        kills += 1;
    }
    println!("{kills} kills");
    assert!(kills > 5, "{kills}");
    node.install(&["--no-dry-add"]);
    assert_eq!(super::node::names(&node.bin), ["istio-cni"], "temporary files are removed");
}
