//! A process that holds namespaces of any kind, for programs that enter them from outside.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::process;

/// Which namespaces a [`Holder`] keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// A user namespace whose ids 0 to 65535 are 100000 to 165535 outside.
    pub user: bool,
    /// A network namespace, which belongs to the user namespace if there is one.
    pub net: bool,
    /// A mount namespace whose changes stay inside.
    pub mount: bool,
}

/// A running process that keeps namespaces; they go once it is dropped.
#[derive(Debug)]
pub struct Holder {
    child: Child,
    kinds: Kinds,
}

impl Holder {
    /// Starts it. The shell script `setup`, with `env`, makes of the namespaces what they are to be.
    pub fn new<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        kinds: Kinds,
        setup: &str,
        env: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let Kinds { user, net, mount } = kinds;
        let flags = [(user, "--user"), (net, "--net"), (mount, "--mount")];
        let flags = flags.into_iter().filter_map(|(wanted, flag)| wanted.then_some(flag));
        let mut child = Command::new("unshare")
            .args(flags)
            .args(mount.then_some(["--propagation", "private"]).into_iter().flatten())
            .args(["sh", "-c", &format!("set -eu; {setup}\necho ready; exec cat")])
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test needs the program unshare (util-linux)");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("read from the process");
        assert_eq!(line, "ready\n", "the namespaces cannot be made, see the messages above: {setup}");
        if user {
            for map in ["uid_map", "gid_map"] {
                fs::write(format!("/proc/{}/{map}", child.id()), "0 100000 65536").expect("map ids");
            }
        }
        Self { child, kinds }
    }

    /// The process that keeps the namespaces: `/proc/<pid>/ns/net`.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `nsenter` into all of the namespaces, for what is to be run there; as root, if there is a user
    /// namespace.
    #[must_use]
    pub fn enter(&self) -> Command {
        let Kinds { user, net, mount } = self.kinds;
        // By its path: a command whose PATH is set is looked for there.
        let mut command = Command::new(process::find("nsenter"));
        let flags =
            [(user, &["--user", "--setuid=0", "--setgid=0"][..]), (net, &["--net"]), (mount, &["--mount"])];
        command.args(flags.into_iter().filter(|(wanted, _)| *wanted).flat_map(|(_, flags)| flags));
        command.args(["--target", &self.pid().to_string(), "--"]);
        command
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // `cat` ends when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
