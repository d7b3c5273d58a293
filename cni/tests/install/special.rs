//! Symbolic links, FIFOs, hard links, extended attributes, ACLs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, SystemTime};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::node::{LIST, Node, SINGLE};

const FAST: [&str; 1] = ["--no-dry-add"];

/// A command that must end by itself: one that waits for a writer would never.
#[track_caller]
fn ends(mut command: Command) -> String {
    let mut child =
        command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let begin = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("still running");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn irregular_file_is_skipped_and_reported() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    mkfifo(&node.net.join("01-fifo.conflist"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(node.net.join("02-socket.conf")).unwrap();
    std::fs::create_dir(node.net.join("03-directory.conflist")).unwrap();
    symlink("/dev/zero", node.net.join("04-device.json")).unwrap();
    symlink("nowhere", node.net.join("05-dangling.conf")).unwrap();
    symlink("07-loop.conf", node.net.join("07-loop.conf")).unwrap();
    symlink("03-directory.conflist", node.net.join("06-link.conf")).unwrap();
    mkfifo(&node.net.join("90-fifo.conf"), Mode::S_IRWXU).unwrap();
    mkfifo(&node.net.join("03-directory.conflist/fifo.conf"), Mode::S_IRWXU).unwrap();
    let names = node.names();
    let text = ends(node.command("install", &["--once", "--no-dry-add"]));
    for name in ["01-fifo.conflist", "02-socket.conf", "04-device.json", "06-link.conf"] {
        assert!(text.contains(&format!("{name}: not a regular file")), "{name}: {text}");
    }
    for name in ["05-dangling.conf", "07-loop.conf"] {
        assert!(text.contains(&format!("{name}: a link to no file")), "{name}: {text}");
    }
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    let results = node.path("results");
    std::fs::create_dir(&results).unwrap();
    mkfifo(&results.join("x"), Mode::S_IRWXU).unwrap();
    ends(node.command("uninstall", &["--binary", &format!("--results-dir={}", results.display())]));
    assert_eq!(node.read("10-a.conflist"), LIST);
    assert_eq!(node.names(), names);
    assert!(std::fs::symlink_metadata(node.net.join("01-fifo.conflist")).unwrap().file_type().is_fifo());
    assert!(std::fs::read_dir(&node.bin).unwrap().next().is_none());
}

#[test]
fn program_that_is_not_a_regular_file_is_refused() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let program = node.bin.join("istio-cni");
    mkfifo(&program, Mode::S_IRWXU).unwrap();
    let problem = "bin/istio-cni: not a regular file";
    node.fails("install", &["--once"], problem);
    std::fs::remove_file(&program).unwrap();
    std::fs::create_dir(&program).unwrap();
    node.fails("install", &["--once"], problem);
    assert_eq!(node.read("10-a.conflist"), LIST);
    // A link to nothing is replaced, not what it leads to.
    std::fs::remove_dir(&program).unwrap();
    symlink("elsewhere", &program).unwrap();
    node.install(&FAST);
    assert_eq!(super::node::names(&node.bin), ["istio-cni"]);
}

#[test]
fn attributes_of_a_replaced_file_stay() {
    for (name, installed) in [("10-a.conflist", "10-a.conflist"), ("10-a.conf", "10-a-istio.conflist")] {
        let node = Node::with_program(&[(name, if name == installed { LIST } else { SINGLE })]);
        let path = node.net.join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        chown(&path, Some(12), Some(34)).unwrap();
        // An ACL: user 77 reads.
        let acl: Vec<u8> = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 4, 0, 77, 0, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[16, 0, 4, 0, 255, 255, 255, 255],
            &[32, 0, 0, 0, 255, 255, 255, 255],
        ]
        .concat();
        let label = b"system_u:object_r:container_file_t:s0\0".to_vec();
        let attributes =
            [("security.selinux", label), ("system.posix_acl_access", acl), ("user.note", b"x".to_vec())];
        for (attribute, value) in &attributes {
            xattr::set(&path, attribute, value).unwrap_or_else(|error| panic!("{attribute}: {error}"));
        }
        // Bound to the content, which changes.
        xattr::set(&path, "security.ima", b"\x04\x04digest").unwrap();
        let expect = |name: &str| {
            let path = node.net.join(name);
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (12, 34, 0o640), "{name}");
            for (attribute, value) in &attributes {
                assert_eq!(
                    xattr::get(&path, attribute).unwrap().as_ref(),
                    Some(value),
                    "{name}: {attribute}"
                );
            }
        };
        node.install(&FAST);
        expect(installed);
        assert_eq!(xattr::get(node.net.join(installed), "security.ima").unwrap(), None);
        node.uninstall(&[]);
        expect(name);
    }
}

#[test]
fn link_within_the_directory_stays_a_link_and_other_hard_links_keep_their_bytes() {
    let node = Node::with_program(&[("real", LIST)]);
    symlink("real", node.net.join("10-a.conflist")).unwrap();
    std::fs::hard_link(node.net.join("real"), node.net.join("other")).unwrap();
    node.install(&FAST);
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    assert!(std::fs::symlink_metadata(node.net.join("10-a.conflist")).unwrap().is_symlink());
    assert_eq!(node.read("other"), LIST);
    node.uninstall(&[]);
    assert_eq!(node.read("10-a.conflist"), LIST);
}

/// The entry is not taken out again by the other name.
#[test]
fn two_links_to_one_list_are_one_list() {
    let node = Node::with_program(&[("real", LIST)]);
    for name in ["10-a.conflist", "20-b.conflist"] {
        symlink("real", node.net.join(name)).unwrap();
    }
    for _ in 0..2 {
        node.install(&FAST);
        assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    }
    node.uninstall(&[]);
    assert_eq!(node.read("real"), LIST);
}

/// Runs the agent in a mount namespace in which the directory of configurations is another file system.
fn mounted(node: &Node, options: &str, script: &str) -> (bool, String) {
    let [net, bin, run] = [&node.net, &node.bin, &node.run].map(|path| path.display().to_string());
    let script = format!(
        "set -e\nmount -t tmpfs {options} tmpfs '{net}'\n{script}\n\
         '{program}' install --once --no-dry-add --net-dir='{net}' --bin-dir='{bin}' --run-dir='{run}' && code=0 || code=$?\n\
         ls -A '{net}'; cat '{net}'/10-a.conflist; exit $code\n",
        program = super::node::program().display()
    );
    let mut command = Command::new("unshare");
    let output = command.args(["--mount", "sh", "-c", &script]).current_dir(&node.net).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn full_and_read_only_file_systems_are_reported_and_nothing_is_left() {
    let node = Node::with_program(&[]);
    std::fs::write(node.path("list"), LIST).unwrap();
    let list = node.path("list").display().to_string();
    let net = node.net.display().to_string();
    let copy = format!("cp '{list}' '{net}/10-a.conflist'");
    let (done, text) = mounted(
        &node,
        "-o size=64k",
        &format!("{copy}; dd if=/dev/zero of='{net}/fill' bs=4k 2>/dev/null || true"),
    );
    assert!(!done && text.contains("No space left on device"), "{text}");
    assert!(text.starts_with("10-a.conflist\nfill\n") && text.contains(LIST), "{text}");
    let (done, text) = mounted(&node, "", &format!("{copy}; mount -o remount,ro '{net}'"));
    assert!(!done && text.contains("Read-only file system") && text.contains(LIST), "{text}");
    let (done, text) = mounted(&node, "", &copy);
    assert!(done && text.contains("istio-cni"), "{text}");
}

/// The runtime, which takes names and texts for bytes, would use these files, and our entry would be in
/// another one.
#[test]
fn file_that_is_not_utf_8_is_not_passed_over() {
    let name = OsStr::from_bytes(b"05-\xff.conflist");
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    std::fs::write(node.net.join(name), LIST).unwrap();
    node.install(&FAST);
    let read = |name: &OsStr| std::fs::read_to_string(node.net.join(name)).unwrap();
    assert_eq!(super::node::types(&read(name)).unwrap(), ["bridge", "portmap", "istio-cni"]);
    assert_eq!(node.read("10-a.conflist"), LIST);
    node.uninstall(&[]);
    assert_eq!(read(name), LIST);
    // A single configuration, too.
    let node = Node::with_program(&[]);
    let single = OsStr::from_bytes(b"05-\xff.conf");
    std::fs::write(node.net.join(single), SINGLE).unwrap();
    node.install(&FAST);
    let list = std::fs::read_to_string(node.net.join(OsStr::from_bytes(b"05-\xff-istio.conflist"))).unwrap();
    assert_eq!(super::node::types(&list).unwrap(), ["bridge", "istio-cni"]);
    node.uninstall(&[]);
    assert_eq!(std::fs::read_to_string(node.net.join(single)).unwrap(), SINGLE);
    // Go replaces what is not UTF-8 in a string.
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    let latin = [&br#"{"name":"b","plugins":[{"type":"bridge","x":""#[..], b"\xe4", br#""}]}"#].concat();
    let path = node.net.join("05-b.conflist");
    std::fs::write(&path, latin).unwrap();
    // It is not being written.
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    node.fails("install", &["--once", "--no-dry-add"], "05-b.conflist: not valid UTF-8");
    assert_eq!(node.read("10-a.conflist"), LIST);
    node.uninstall(&[]);
}

/// Neither libcni nor this agent reads a list that begins with a byte order mark.
#[test]
fn byte_order_mark_makes_a_list_invalid() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.write_old("05-b.conflist", &format!("\u{feff}{LIST}"));
    node.install(&FAST);
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    assert_eq!(node.read("05-b.conflist"), format!("\u{feff}{LIST}"));
}

#[test]
fn directories_may_be_links() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    for (dir, real) in [(&node.net, "real-net"), (&node.bin, "real-bin")] {
        std::fs::rename(dir, node.path(real)).unwrap();
        symlink(real, dir).unwrap();
    }
    node.install(&[]);
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    let option = format!("--results-dir={}", node.path("results").display());
    node.uninstall(&["--binary", &option]);
    assert_eq!(node.read("10-a.conflist"), LIST);
    assert_eq!(super::node::names(&node.path("real-bin")), [""; 0]);
}

/// A debug build of the program is larger than any configuration that is read.
#[test]
fn program_of_more_than_64_mib_is_installed() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let large = node.path("large");
    std::fs::copy(super::node::program(), &large).unwrap();
    let file = std::fs::File::options().write(true).open(&large).unwrap();
    let length = file.metadata().unwrap().len().max(65 << 20) + 1;
    file.set_len(length).unwrap();
    drop(file);
    let run = |subcommand: &str, options: &[&str]| {
        let mut command = Command::new(&large);
        command.args(node.command(subcommand, options).get_args());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8(output.stderr).unwrap());
    };
    run("install", &["--once", "--no-dry-add"]);
    assert_eq!(std::fs::metadata(node.bin.join("istio-cni")).unwrap().len(), length);
    run("install", &["--once", "--no-dry-add"]);
    run("uninstall", &["--binary", &format!("--results-dir={}", node.path("results").display())]);
    assert!(!node.bin.join("istio-cni").exists());
}

#[test]
fn many_files_and_large_ones_are_no_obstacle() {
    let node = Node::with_program(&[("0-a.conflist", LIST)]);
    for number in 0..5_000 {
        node.write(&format!("{number:05}-other.conflist.bak"), "x");
        node.write(&format!("{number:05}-other.conf"), SINGLE);
    }
    node.install(&FAST);
    assert_eq!(node.types("0-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    node.uninstall(&[]);
    assert_eq!(node.read("0-a.conflist"), LIST);
}
