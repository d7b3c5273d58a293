//! A place to run in: a network namespace with one link, and a mount namespace whose changes stay inside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use netlab::process::under_test;
use netlab::{Holder, Kinds};

pub(crate) use crate::run::Ended;
use crate::run::Run;

/// The binary under test, as every pod has it: where it was built may be hidden by what a test mounts over
/// it.
pub(crate) const BINARY: &str = "/mnt/istio-iptables";
/// The binary under test, for runs outside of a pod.
pub(crate) static BUILT: LazyLock<String> =
    LazyLock::new(|| under_test("ISTIO_IPTABLES_PROGRAM", env!("CARGO_BIN_EXE_istio-iptables")));
/// The default `PATH` of a run.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What the tests need.
const NEEDED: [&str; 13] = [
    "unshare",
    "nsenter",
    "setpriv",
    "flock",
    "ip",
    "ss",
    "nft",
    "iptables-nft-restore",
    "iptables-legacy-restore",
    "ip6tables-nft-restore",
    "ip6tables-legacy-restore",
    "mount",
    "mknod",
];
/// The options of an injected pod, as far as they make rules.
pub(crate) const SIDECAR: [&str; 8] = ["-b", "*", "-i", "*", "-d", "15090,15021,15020", "-u", "1337"];

/// One IPv4 address, as most pods have it.
pub(crate) const V4: &str = "ip addr add 10.4.4.4/24 dev eth0";
/// An address of each family.
pub(crate) const DUAL: &str = "ip addr add 10.4.4.4/24 dev eth0; ip addr add 2001:db8::4/64 dev eth0 nodad";

/// The namespaces, which go once it is dropped.
pub(crate) struct Pod {
    holder: Holder,
    /// A directory for the test's files, the same inside and outside.
    pub(crate) directory: tempfile::TempDir,
}

impl Pod {
    /// A pod with an IPv4 address.
    pub(crate) fn new() -> Self {
        Self::with(V4)
    }

    /// A pod with both families.
    pub(crate) fn dual() -> Self {
        Self::with(DUAL)
    }

    /// A pod with whatever the shell script `setup` makes of it. `/run` is empty and writable. The directory
    /// is there even if it is below a folder that `setup` hides, such as `/tmp`.
    pub(crate) fn with(setup: &str) -> Self {
        require();
        let directory =
            tempfile::Builder::new().prefix("environment-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // The files of other users are part of some tests.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let built = &*BUILT;
        let script = format!(
            "mount -t tmpfs binary /mnt; touch {BINARY}; mount --bind {built} {BINARY}; \
             mkdir /mnt/directory; mount --bind $DIR /mnt/directory; \
             mount -t tmpfs run /run; ip link set lo up; \
             echo 1 > /proc/sys/net/ipv6/conf/default/addr_gen_mode; \
             ip link add eth0 type veth peer name peer0; ip link set eth0 up; ip link set peer0 up; \
             {setup}\n\
             [ -e $DIR ] || [ ! -e /mnt/directory ] || {{ mkdir -p $DIR && mount --bind /mnt/directory $DIR; }} 2>/dev/null || :"
        );
        let kinds = Kinds { net: true, mount: true, user: false };
        let env = [("DIR", directory.path().as_os_str()), ("PATH", USUAL_PATH.as_ref())];
        let holder = Holder::new(kinds, &script, env);
        Self { holder, directory }
    }

    /// The process that holds the namespaces.
    pub(crate) fn pid(&self) -> u32 {
        self.holder.pid()
    }

    /// A command inside, with an empty environment.
    fn enter(&self) -> Command {
        let mut command = self.holder.enter();
        command.env_clear();
        command
    }

    /// A file in the test's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program in the test's directory, below `folder`.
    pub(crate) fn program(&self, folder: &str, name: &str, script: &str) -> PathBuf {
        let folder = self.path(folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A folder in the test's directory with links to system programs:
    /// `("iptables-restore", "iptables-nft-restore")`.
    pub(crate) fn links(&self, folder: &str, links: &[(&str, &str)]) -> PathBuf {
        let folder = self.path(folder);
        fs::create_dir_all(&folder).unwrap();
        for (name, target) in links {
            std::os::unix::fs::symlink(real(target), folder.join(name)).unwrap();
        }
        folder
    }

    /// The binary, to be run inside.
    pub(crate) fn istio<'a>(&self, args: &[&'a str]) -> Run<'a> {
        Run::new(self.enter(), args).env("PATH", USUAL_PATH)
    }

    /// The output of a shell script run inside, which must succeed.
    pub(crate) fn sh(&self, script: &str) -> String {
        let output = self
            .enter()
            .args(["sh", "-euc", script])
            .env("PATH", USUAL_PATH)
            .env("DIR", self.directory.path())
            .env("BIN", BINARY)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}: {output:?}");
        text
    }

    /// Everything the binary may change in the kernel: rules, tables, policy rules, routes and addresses.
    /// Legacy tables are read only if they exist. Routes of the links do not count: they come when the link
    /// is ready.
    pub(crate) fn state(&self) -> String {
        self.sh("for ip in ip ip6; do echo \"== $ip nft\"; ${ip}tables-nft-save; \
             names=/proc/net/${ip}_tables_names; echo \"== $ip legacy\"; [ -e $names ] || continue; \
             for table in filter mangle nat raw; do grep -qx $table $names || continue; ${ip}tables-legacy-save -t $table; done; done 2>/dev/null \
             | sed -e '/^#/d' -e 's/ \\[[0-9]*:[0-9]*\\]$//'; \
             echo '== tables'; nft -s list tables; \
             for f in -4 -6; do echo \"== ip $f\"; ip $f rule; ip $f route show table all | grep -v -e ' dev eth0 ' -e ' dev peer0 ' || :; done; \
             echo '== lo'; ip -o addr show lo")
    }

    /// The rules and chains ours and foreign, in [`Self::state`]; tables and built-in chains that are empty
    /// do not count.
    pub(crate) fn rules(&self) -> String {
        let state = self.state();
        let counts = |line: &&str| {
            let empty_table = line.starts_with('*') || *line == "COMMIT" || line.starts_with("table ");
            let built_in = line.starts_with(':') && !line.contains(" - ") && !line.ends_with(" -");
            !(empty_table || built_in)
        };
        state.lines().filter(counts).fold(String::new(), |mut text, line| {
            text += line;
            text.push('\n');
            text
        })
    }

    /// Lists the names of the legacy tables that exist.
    pub(crate) fn legacy_tables(&self) -> String {
        self.sh("cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null | sort -u || :")
    }
}

/// Fails unless the tests can be run at all.
fn require() {
    assert!(nix::unistd::geteuid().is_root(), "these tests make network namespaces and need root");
    for tool in NEEDED {
        assert!(which(tool).is_some(), "these tests need `{tool}` in PATH");
    }
}

fn which(tool: &str) -> Option<PathBuf> {
    let folders = USUAL_PATH.split(':').map(Path::new);
    folders.map(|folder| folder.join(tool)).find(|path| path.exists())
}

/// Where a system program is; the link itself, since iptables looks at the name it is called by.
pub(crate) fn real(tool: &str) -> PathBuf {
    which(tool).unwrap_or_else(|| panic!("these tests need `{tool}` in PATH"))
}
