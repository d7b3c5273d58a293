//! `--bin-dir` is the runtime's plugin directory: programs of the network plugins are in it. Elsewhere the
//! runtime would not find ours, and no pod could start.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use super::node::{LIST, Node, SINGLE, program};

/// `istio-cni install` with the default directory of programs, which is this one of the node.
fn install_in_default_dir(node: &Node) -> Output {
    let script = r#"mount --bind "$2" /opt && shift 2 && exec "$@""#;
    let opt = node.path("opt");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-ec", script, "sh", "-"]).arg(&opt);
    command.arg(program()).args(["install", "--once", "--no-dry-add"]).env_remove("CNI_COMMAND");
    command.args([format!("--net-dir={}", node.net.display()), format!("--run-dir={}", node.run.display())]);
    command.output().unwrap()
}

#[test]
fn directory_without_programs_of_the_network_is_refused_unless_it_was_given() {
    for (name, text, other) in [("10-a.conflist", LIST, "portmap"), ("10-a.conf", SINGLE, "bridge")] {
        let node = Node::new(&[(name, text)]);
        let bin = node.path("opt/cni/bin");
        fs::create_dir_all(&bin).unwrap();
        let output = install_in_default_dir(&node);
        let problem = String::from_utf8_lossy(&output.stderr);
        let expected = format!("/opt/cni/bin has no program of {}/{name} (bridge", node.net.display());
        assert!(!output.status.success() && problem.contains(&expected), "{output:?}");
        assert_eq!((node.names(), node.read(name).as_str()), (vec![name.to_owned()], text));
        // In k3s it is a link out of the directory.
        symlink("/nonexistent/plugin", bin.join(other)).unwrap();
        let output = install_in_default_dir(&node);
        assert!(output.status.success(), "{output:?}");
        assert!(node.names().iter().any(|name| node.read(name).contains("istio-cni")));
    }
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let output = node.run("install", &["--once", "--no-dry-add"]);
    let warning = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && warning.contains("no program of"), "{output:?}");
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    let output = node.run("install", &["--once", "--no-dry-add"]);
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("no program of"),
        "nothing was written: {output:?}"
    );
}
