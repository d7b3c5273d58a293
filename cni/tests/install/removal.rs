//! Removal: the entry, the state, and the program only when nothing names it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::node::{LIST, Node, SINGLE, names};

/// A cached result as libcni writes it; its configuration names the plugin, in Base64.
const CACHED: &str = r#"{"kind":"cniCacheV1","containerId":"x","config":"eyJuYW1lIjoibmV0IiwicGx1Z2lucyI6W3sidHlwZSI6ImJyaWRnZSJ9LHsidHlwZSI6ImlzdGlvLWNuaSJ9XX0=","ifName":"eth0"}"#;

#[test]
fn program_stays_while_anything_names_it() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    node.install(&[]);
    std::fs::write(node.run.join("state/x.eth0.json"), "{}").unwrap();
    let results = node.path("results");
    std::fs::create_dir(&results).unwrap();
    std::fs::write(results.join("cluster-x-eth0"), CACHED).unwrap();
    std::fs::write(results.join("cluster-y-eth0"), r#"{"config":"eyJ0eXBlIjoiYnJpZGdlIn0="}"#).unwrap();
    // Only multus could use it: not first, and not a list.
    node.write("90-other.conf", r#"{"name": "other", "type": "istio\u002dcni"}"#);
    let option = format!("--results-dir={}", results.display());
    let output = node.run("uninstall", &["--binary", &option]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text.matches("program kept, named by: ").count(), 2, "{text}");
    assert!(text.contains("/90-other.conf\n") && text.contains("/cluster-x-eth0\n"), "{text}");
    assert_eq!((node.read("10-a.conflist").as_str(), names(&node.bin)), (LIST, vec!["istio-cni".to_owned()]));
    assert!(!node.run.join("state").exists());
    std::fs::remove_file(results.join("cluster-x-eth0")).unwrap();
    std::fs::remove_file(node.net.join("90-other.conf")).unwrap();
    node.uninstall(&[&option]);
    assert_eq!(names(&node.bin), ["istio-cni"], "without --binary");
    assert!(node.uninstall(&["--binary", &option]).contains("bin/istio-cni"));
    assert_eq!(names(&node.bin), [""; 0]);
    node.uninstall(&["--binary", &option]);
}

#[test]
fn log_stays_as_long_as_the_program_and_nothing_after_it() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    let agent = super::agent::Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    agent.end();
    let logs = ["istio-cni.log", "istio-cni.log.1"];
    for log in logs {
        std::fs::write(node.run.join(log), "a line").unwrap();
    }
    let option = format!("--results-dir={}", node.path("results").display());
    node.uninstall(&[&option]);
    assert_eq!(names(&node.run), logs);
    node.write("90-other.conf", r#"{"name": "other", "type": "istio-cni"}"#);
    assert!(!node.run("uninstall", &["--binary", &option]).status.success());
    assert_eq!(names(&node.run), logs, "the runtime may still call the program");
    std::fs::remove_file(node.net.join("90-other.conf")).unwrap();
    assert!(node.uninstall(&["--binary", &option]).contains("/run/istio-cni.log.1\n"));
    assert!(!node.run.exists());
    // What is not ours stays, with its directory.
    std::fs::create_dir(&node.run).unwrap();
    std::fs::write(node.run.join("other"), "").unwrap();
    node.uninstall(&["--binary", &option]);
    assert_eq!(names(&node.run), ["other"]);
}

#[test]
fn entry_is_removed_from_every_list_and_changes_of_others_stay() {
    let node = Node::with_program(&[("10-a.conflist", LIST), ("20-b.conf", SINGLE)]);
    node.install(&["--no-dry-add"]);
    // Another network plugin takes the first place, with a list that is edited, too.
    node.write("05-c.conflist", LIST);
    node.install(&["--no-dry-add"]);
    let changed = node.read("10-a.conflist").replace("1.50e3", "9000");
    node.write("10-a.conflist", &changed);
    node.uninstall(&[]);
    assert_eq!(node.read("05-c.conflist"), LIST);
    assert_eq!(node.read("10-a.conflist"), LIST.replace("1.50e3", "9000"));
    assert_eq!(node.read("20-b.conf"), SINGLE);
}

#[test]
fn list_of_nothing_else_is_refused() {
    let entry = r#"{"type":"istio-cni","capabilities":{"io.kubernetes.cri.pod-annotations":true}}"#;
    let node = Node::with_program(&[("10-a.conflist", &format!(r#"{{"name":"x","plugins":[{entry}]}}"#))]);
    node.fails("uninstall", &[], "istio-cni is the only one");
}

/// As after `kubeadm reset`, which removes the directory.
#[test]
fn uninstall_succeeds_without_the_directory_of_configurations() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    std::fs::remove_dir_all(&node.net).unwrap();
    let option = format!("--results-dir={}", node.path("results").display());
    assert!(node.uninstall(&["--binary", &option]).contains("bin/istio-cni"));
    assert_eq!(names(&node.bin), [""; 0]);
    assert!(!node.run.join("state").exists());
    node.uninstall(&["--binary", &option]);
}

/// Cilium renames other programs' configurations. One that comes back needs the program.
#[test]
fn program_stays_while_a_renamed_configuration_names_it() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    std::fs::rename(node.net.join("10-a.conflist"), node.net.join("10-a.conflist.cilium_bak")).unwrap();
    let option = format!("--results-dir={}", node.path("results").display());
    let output = node.run("uninstall", &["--binary", &option]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("program kept, named by: ") && text.contains("10-a.conflist.cilium_bak\n"),
        "{text}"
    );
    assert_eq!(names(&node.bin), ["istio-cni"]);
}

/// What another program has broken does not keep our entry on the node.
#[test]
fn uninstall_takes_the_entry_out_beside_a_file_that_cannot_be_read() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    std::os::unix::fs::symlink("05-loop.conflist", node.net.join("05-loop.conflist")).unwrap();
    node.uninstall(&[]);
    assert_eq!(node.read("10-a.conflist"), LIST);
}

/// The runtime ignores an invalid file; once repaired, the file refers to the plugin again.
#[test]
fn list_that_cannot_be_read_is_reported_and_the_program_stays_if_the_list_names_it() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    let with_entry = node.read("10-a.conflist");
    let results = format!("--results-dir={}", node.path("results").display());
    for (text, problem) in [
        (with_entry.replace("\"plugins\"", "plugins"), "key must be a string"),
        (with_entry[..with_entry.len() - 20].to_owned(), "EOF while parsing"),
        (with_entry.replace("1.50e3", "1e999"), "1e999 is not accepted"),
        (
            with_entry.replace("\"name\":", "\"disableCheck\": 1, \"name\":"),
            "disableCheck: 1 is not accepted",
        ),
    ] {
        assert_ne!(text, with_entry);
        node.write_old("10-a.conflist", &text);
        for options in [&[results.as_str()][..], &["--binary", &results]] {
            let output = node.run("uninstall", options);
            let out = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(1), "{out}");
            let line =
                out.lines().find(|line| line.starts_with("not removed: ")).unwrap_or_else(|| panic!("{out}"));
            let is_named = line.contains("/10-a.conflist: ") && line.contains("it names istio-cni");
            assert!(is_named && line.contains(problem), "{line}");
            assert_eq!(out.contains("program kept, named by: "), options.len() > 1, "{out}");
        }
        assert_eq!(node.read("10-a.conflist"), text);
        assert_eq!(names(&node.bin), ["istio-cni"]);
    }
    // A drop-in file, too.
    node.write("10-a.conflist", &with_entry);
    node.install(&["--no-dry-add", "--drop-in=yes"]);
    node.write_old("cluster/50-istio-cni.conf", "{\"type\":\"istio-cni\"");
    let output = node.run("uninstall", &[&results]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.code() == Some(1) && out.contains("/50-istio-cni.conf: EOF while parsing"),
        "{out}"
    );
    assert_eq!(node.read("cluster/50-istio-cni.conf"), "{\"type\":\"istio-cni\"");
}

#[test]
fn list_that_cannot_be_examined_is_reported() {
    for (text, problem) in
        [("", "empty"), ("{\"plugins\": [", "EOF while parsing"), ("x", "not a JSON object")]
    {
        let node = Node::with_program(&[("20-b.conflist", LIST)]);
        node.install(&["--no-dry-add"]);
        node.write_old("10-a.conflist", text);
        // Valid files of other plugins are not listed.
        node.write_old("30-c.conflist", "{\"cniVersion\": \"1.0.0\"}");
        std::fs::create_dir(node.net.join("other.d")).unwrap();
        node.write_old("other.d/other.conf", "no JSON");
        let option = format!("--results-dir={}", node.path("results").display());
        let out = node.uninstall(&["--binary", &option]);
        let lines: Vec<_> = out.lines().filter(|line| line.starts_with("not examined: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(&format!("/10-a.conflist: {problem}")), "{out}");
        assert_eq!((node.read("10-a.conflist").as_str(), node.read("20-b.conflist").as_str()), (text, LIST));
        assert_eq!(names(&node.bin), [""; 0]);
    }
}

/// Another program writes a list in place: uninstall waits until it is complete, then removes the entry.
#[test]
fn uninstall_waits_for_a_list_that_is_being_written() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    let (path, text) = (node.net.join("10-a.conflist"), node.read("10-a.conflist"));
    let is_complete = AtomicBool::new(false);
    node.write("10-a.conflist", &text[..40]);
    let output = std::thread::scope(|scope| {
        // Independent of scheduling.
        scope.spawn(|| {
            let file = std::fs::File::options().append(true).open(&path).unwrap();
            while !is_complete.load(Ordering::SeqCst) {
                file.set_modified(SystemTime::now()).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let uninstall = scope.spawn(|| node.run("uninstall", &[]));
        std::thread::sleep(Duration::from_millis(500));
        node.write("10-a.conflist", &text);
        is_complete.store(true, Ordering::SeqCst);
        uninstall.join().unwrap()
    });
    assert!(output.status.success(), "{output:?}");
    assert_eq!(node.read("10-a.conflist"), LIST);
}

/// Completed steps are printed although a later one fails.
#[test]
fn changes_before_an_error_are_printed() {
    let node = Node::with_program(&[("10-a.conflist", LIST)]);
    node.install(&["--no-dry-add"]);
    std::fs::remove_file(node.bin.join("istio-cni")).unwrap();
    std::fs::create_dir(node.bin.join("istio-cni")).unwrap();
    let output = node.run("uninstall", &[]);
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1));
    assert!(out.contains("changed: ") && out.contains("/10-a.conflist\n"), "{out}");
    assert!(error.contains("not a regular file"), "{error}");
    assert_eq!(node.read("10-a.conflist"), LIST);
}
