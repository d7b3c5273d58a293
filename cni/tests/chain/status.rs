//! STATUS with a run directory in which ADD cannot write state.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::plugin;

/// STATUS in a mount namespace, in which the run directory is a file system that a script prepares. Returns
/// what it prints, and what is in the directory `state` afterwards.
fn status(options: &str, prepare: &str) -> (bool, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().display();
    let script = format!(
        "set -e\nmount -t tmpfs -o {options} tmpfs '{run}'\ncd '{run}'\nmkdir state\n{prepare}\n\
         CNI_COMMAND=STATUS '{program}' && code=0 || code=$?\necho; ls -A state; exit $code\n",
        program = plugin().display()
    );
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let conf = json!({
        "cniVersion": "1.1.0", "name": "pods", "cni_agent_run_dir": folder.path(), "deadline_ms": 120_000,
        "capabilities": {"io.kubernetes.cri.pod-annotations": true}
    });
    child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (printed, names) = text.split_once('\n').unwrap_or_else(|| panic!("{text}"));
    (output.status.success(), printed.to_owned(), names.trim().to_owned())
}

#[test]
fn status_fails_where_state_files_cannot_be_written() {
    let fill = "dd if=/dev/zero of=fill bs=4k 2>/dev/null || true";
    let files = "for name in $(seq 100); do touch $name || break; done 2>/dev/null";
    for (options, prepare, part) in [
        ("size=64k", fill, "No space left on device"),
        ("nr_inodes=20", files, "No space left on device"),
        ("size=64k", "mount -o remount,ro \"$PWD\"", "Read-only file system"),
    ] {
        let (success, printed, _) = status(options, prepare);
        assert!(!success, "{part}: {printed}");
        let error: Value = serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{printed}"));
        assert_eq!(error["code"], 50, "{printed}");
        let message = error["msg"].as_str().unwrap();
        assert!(message.contains(part) && message.contains("cni_agent_run_dir"), "{message}");
    }
    assert_eq!(status("size=64k", ""), (true, String::new(), String::new()), "nothing is left of the probe");
}
