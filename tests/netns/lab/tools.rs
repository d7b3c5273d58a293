//! Tools of iptables in front of the real ones.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::kill::When;

/// How long a tool may take to be called.
const CALLED: Duration = Duration::from_secs(60);

/// Puts a script in the place of every restore tool; `{real}` in it is the path of the real one.
pub(crate) fn restore_tools(directory: &Path, script: &str) {
    for ip in ["iptables", "ip6tables"] {
        for variant in ["nft", "legacy"] {
            let tool = format!("{ip}-{variant}-restore");
            let script = script.replace("{real}", &format!("/usr/sbin/{tool}"));
            let path = directory.join(&tool);
            fs::write(&path, format!("#!/bin/sh\n{script}")).expect("write a script");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make it executable");
        }
    }
}

/// A search path that begins with this directory.
pub(crate) fn path(directory: &Path) -> String {
    format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", directory.display())
}

/// Restore tools, one call of which kills the run that started it.
pub(crate) struct KillingTools(tempfile::TempDir);

impl KillingTools {
    /// The n-th call does so before or after its work.
    pub(crate) fn at_call(number: usize, when: When) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let work = if when == When::After { "{real} \"$@\"\n" } else { "" };
        let script = format!(
            "here=${{0%/*}}\necho >> $here/calls\n\
             if [ \"$(wc -l < $here/calls)\" -ne {number} ]; then exec {{real}} \"$@\"; fi\n{work}kill -9 $PPID\n"
        );
        restore_tools(directory.path(), &script);
        Self(directory)
    }

    pub(crate) fn path(&self) -> String {
        path(self.0.path())
    }
}

/// Restore tools, one call of which waits for the test.
pub(crate) struct WaitingTools(tempfile::TempDir);

impl WaitingTools {
    /// The n-th call waits before it does anything.
    pub(crate) fn before_call(number: usize) -> Self {
        Self::new(number, "", "exec {real} \"$@\"")
    }

    /// The n-th call waits after it has done its work.
    pub(crate) fn after_call(number: usize) -> Self {
        Self::new(number, "{real} \"$@\" || exit", "true")
    }

    fn new(number: usize, before: &str, after: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let script = format!(
            "here=${{0%/*}}\necho >> $here/calls\n\
             if [ \"$(wc -l < $here/calls)\" -ne {number} ]; then exec {{real}} \"$@\"; fi\n{before}\n\
             : > $here/called\nwhile [ ! -e $here/go-on ]; do sleep 0.01; done\n{after}\n"
        );
        restore_tools(directory.path(), &script);
        Self(directory)
    }

    pub(crate) fn path(&self) -> String {
        path(self.0.path())
    }

    pub(crate) fn wait_until_called(&self) {
        let deadline = Instant::now() + CALLED;
        while !self.0.path().join("called").exists() {
            assert!(Instant::now() < deadline, "the restore tool was not called");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn go_on(&self) {
        fs::write(self.0.path().join("go-on"), "").expect("let the tools go on");
    }
}
