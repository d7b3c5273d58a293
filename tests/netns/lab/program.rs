//! Running the program under test, and the system's tools.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};

use netlab::Namespace;

use super::kill::{self, When};

/// The only search path there is.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Fails with one sentence unless these tests can run here.
pub(crate) fn require_tools() {
    assert!(geteuid().is_root(), "these tests make network namespaces and users: run them as root");
    for tool in ["ip", "iptables-nft-restore", "ip6tables-nft-restore", "iptables-legacy-restore", "setpriv"]
    {
        assert!(
            find(tool).is_some(),
            "these tests need the tool `{tool}`, which is not in {PATH}: install iproute2, iptables and util-linux"
        );
    }
}

/// The path of a tool.
fn find(name: &str) -> Option<PathBuf> {
    PATH.split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.exists())
}

/// One run of `istio-iptables`, yet to be started.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    namespace: Option<Namespace>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    emptied: Vec<String>,
    user: Option<u32>,
    capabilities: Option<String>,
    read_only: bool,
}

impl Program {
    pub(crate) fn new(namespace: &Namespace, args: &[&str]) -> Self {
        Self { namespace: Some(namespace.clone()), ..Self::anywhere(args) }
    }

    /// A run outside of every pod, in an empty namespace.
    pub(crate) fn anywhere(args: &[&str]) -> Self {
        Self {
            namespace: None,
            args: args.iter().map(|&a| a.to_owned()).collect(),
            env: BTreeMap::new(),
            files: BTreeMap::new(),
            emptied: Vec::new(),
            user: None,
            capabilities: None,
            read_only: false,
        }
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Only the program finds `contents` in the existing file `path`.
    pub(crate) fn file(mut self, path: &str, contents: &str) -> Self {
        self.files.insert(path.to_owned(), contents.to_owned());
        self
    }

    /// Only the program finds the directory `path` empty.
    pub(crate) fn empty_directory(mut self, path: &str) -> Self {
        self.emptied.push(path.to_owned());
        self
    }

    /// Runs as this user, without any capability.
    pub(crate) fn under_user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    /// Runs as root with these capabilities only, written as in `+net_admin,+net_raw`.
    pub(crate) fn with_only(mut self, capabilities: &str) -> Self {
        self.capabilities = Some(capabilities.to_owned());
        self
    }

    /// Runs on a read-only root file system, with `/tmp` and `/run` empty and read-only.
    pub(crate) fn on_read_only_files(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(&self) -> Ended {
        let output = self.inside(|command| command.output().expect("start istio-iptables"));
        Ended { program: self.clone(), output }
    }

    /// Runs it to its end, and does something as soon as it logs a line with `part` in it, or has ended.
    pub(crate) fn run_until_it_logs(&self, part: &str, then: impl FnOnce() + Send) -> Ended {
        let output = self.inside(|command| {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child: Child = command.spawn().expect("start istio-iptables");
            let mut log = BufReader::new(child.stderr.take().unwrap());
            let mut stderr = Vec::new();
            while log.read_until(b'\n', &mut stderr).unwrap() > 0 {
                if String::from_utf8_lossy(&stderr).contains(part) {
                    break;
                }
            }
            then();
            log.read_to_end(&mut stderr).unwrap();
            Output { status: child.wait().unwrap(), stdout: Vec::new(), stderr }
        });
        Ended { program: self.clone(), output }
    }

    /// Starts it in a process group of its own and kills the whole group after `delay`.
    pub(crate) fn run_and_kill_after(&self, delay: Duration) -> Ended {
        let output = self.inside(|command| {
            command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child: Child = command.spawn().expect("start istio-iptables");
            std::thread::sleep(delay);
            kill_group(&child);
            let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
            let output = child.wait_with_output().expect("wait for istio-iptables");
            wait_for_group(group);
            output
        });
        Ended { program: self.clone(), output }
    }

    /// Runs it and kills it, with its tools, at its `number`-th message to the kernel; it ends by itself if
    /// it sends fewer.
    pub(crate) fn run_and_kill_at_send(&self, number: usize, when: When) -> Ended {
        let output = self.inside(|command| kill::run_and_kill_at_send(command, number, when));
        Ended { program: self.clone(), output }
    }

    /// Runs it to its end, and does something at each of its messages to the kernel.
    pub(crate) fn run_and_act_at_sends(&self, act: impl FnMut(usize) + Send) -> Ended {
        let output = self.inside(|command| kill::run_and_act_at_sends(command, act));
        Ended { program: self.clone(), output }
    }

    /// Runs it to its end, and returns the points at which killing it leaves different states.
    pub(crate) fn points(&self) -> Vec<kill::Point> {
        let (points, output) = self.inside(kill::points);
        Ended { program: self.clone(), output }.succeeded();
        points
    }

    fn inside<T: Send>(&self, work: impl FnOnce(&mut Command) -> T + Send) -> T {
        let namespace = self.namespace.clone().unwrap_or_default();
        namespace.run(|| {
            let _contents = self.mount_files();
            let (_directory, binary) = self.binary();
            let mut command = match &self.capabilities {
                None => Command::new(binary),
                Some(capabilities) => {
                    let mut confined = Command::new("setpriv");
                    confined.arg("--bounding-set").arg(format!("-all,{capabilities}")).arg("--").arg(binary);
                    confined
                }
            };
            command.args(&self.args).env_clear().env("PATH", PATH).envs(&self.env).stdin(Stdio::null());
            if let Some(uid) = self.user {
                command.uid(uid).gid(uid);
            }
            work(&mut command)
        })
    }

    /// The program under test; a copy if the user cannot read the build directory.
    fn binary(&self) -> (Option<tempfile::TempDir>, PathBuf) {
        let built = PathBuf::from(if self.read_only { IN_READ_ONLY } else { &BUILT });
        if self.user.is_none() {
            return (None, built);
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("open the directory");
        let copy = directory.path().join("istio-iptables");
        fs::copy(built, &copy).expect("copy the program");
        (Some(directory), copy)
    }

    /// Puts the files over the system's, for this thread and its children only.
    fn mount_files(&self) -> Vec<tempfile::NamedTempFile> {
        if self.files.is_empty() && self.emptied.is_empty() && !self.read_only {
            return Vec::new();
        }
        unshare(CloneFlags::CLONE_NEWNS).expect("a private mount namespace needs CAP_SYS_ADMIN");
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("make mounts private");
        for path in &self.emptied {
            let (kind, none) = (Some("tmpfs"), None::<&str>);
            mount(kind, path.as_str(), kind, MsFlags::empty(), none)
                .unwrap_or_else(|e| panic!("empty {path}: {e}"));
        }
        let over = |(path, contents): (&String, &String)| {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(contents.as_bytes()).expect("write a temporary file");
            mount(Some(file.path()), path.as_str(), None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .unwrap_or_else(|e| panic!("mount over {path}: {e}"));
            file
        };
        let files = self.files.iter().map(over).collect();
        if self.read_only {
            make_read_only();
        }
        files
    }
}

/// No place to write to, for this thread and its children, but for `/dev`, `/proc` and `/mnt`: there the
/// program is found, since the place where it was built may be hidden.
fn make_read_only() {
    let (kind, none) = (Some("tmpfs"), None::<&str>);
    mount(kind, "/mnt", kind, MsFlags::empty(), none).expect("a place for the program");
    fs::write(IN_READ_ONLY, "").expect("a file to mount the program over");
    mount(Some(BUILT.as_str()), IN_READ_ONLY, none, MsFlags::MS_BIND, none).expect("mount the program");
    for path in ["/tmp", "/run"] {
        mount(kind, path, kind, MsFlags::MS_RDONLY, none).unwrap_or_else(|e| panic!("empty {path}: {e}"));
    }
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(none, "/", none, flags, none).expect("make the root file system read-only");
}

/// The program under test.
pub(crate) static BUILT: LazyLock<String> = LazyLock::new(|| {
    netlab::process::under_test("ISTIO_IPTABLES_PROGRAM", env!("CARGO_BIN_EXE_istio-iptables"))
});
/// Where it is found on read-only files.
const IN_READ_ONLY: &str = "/mnt/istio-iptables";

fn kill_group(child: &Child) {
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
    // It may have ended by itself already.
    let _ = killpg(group, Signal::SIGKILL);
}

/// A tool that was killed may still be at work in the kernel: its system call ends first.
fn wait_for_group(group: Pid) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_at_work(group) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process of the group is not a zombie.
fn is_at_work(group: Pid) -> bool {
    let of_group = |stat: String| {
        // Behind the name, which may have any characters: state, parent, group.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, in_group) = (words.next()?, words.nth(1)?);
        (in_group == group.to_string()).then_some(state != "Z" && state != "X")
    };
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    stats.filter_map(of_group).any(|at_work| at_work)
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    program: Program,
    output: Output,
}

impl Ended {
    /// Exit code; -1 after a signal.
    pub(crate) fn code(&self) -> i32 {
        self.output.status.code().unwrap_or(-1)
    }

    /// Everything it said.
    pub(crate) fn output(&self) -> String {
        let (out, err) = (&self.output.stdout, &self.output.stderr);
        format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
    }

    /// The standard output.
    #[track_caller]
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub(crate) fn succeeded(self) -> Self {
        self.ended_with(0)
    }

    /// Asserts that the run ended with this code.
    #[track_caller]
    pub(crate) fn ended_with(self, code: i32) -> Self {
        assert_eq!(
            self.code(),
            code,
            "exit code of istio-iptables {:?} {:?}, which said:\n{}",
            self.program.args,
            self.program.env,
            self.output()
        );
        self
    }

    /// Asserts that the run said something with this in it, in whatever case.
    #[track_caller]
    pub(crate) fn output_contains(self, part: &str) -> Self {
        let said = self.output();
        assert!(
            said.to_lowercase().contains(&part.to_lowercase()),
            "expected {part:?} in what it said:\n{said}"
        );
        self
    }
}

/// Runs a tool where the calling thread is; it must succeed.
#[track_caller]
pub(crate) fn tool(name: &str, args: &[&str], input: &str) -> String {
    try_tool(name, args, input).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a tool where the calling thread is; an error is what it said.
pub(crate) fn try_tool(name: &str, args: &[&str], input: &str) -> Result<String, String> {
    // By its path: a command whose PATH is set and that has to be looked for is forked, which copies this
    // process's memory map.
    let path = find(name).unwrap_or_else(|| panic!("the tool `{name}` is needed, which is not in {PATH}"));
    let mut child = Command::new(path)
        .args(args)
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("start the tool `{name}`: {e}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    if ended.status.success() {
        Ok(out.into_owned())
    } else {
        Err(format!("{name} {args:?}: {err}{out}\ninput:\n{input}"))
    }
}
