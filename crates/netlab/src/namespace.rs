//! Network namespaces that belong to a test and vanish with it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::{Links, process};

/// A network namespace, held by file descriptors: no name, nothing to clean up.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<Held>);

#[derive(Debug)]
struct Held {
    network: File,
    /// Mounts with a `/run/xtables.lock` of their own, as in a pod; `None` for the namespace of a process
    /// that was found.
    mounts: Option<File>,
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

/// Packets that wait for a processor. All namespaces share its queue, and what `veth` hands over goes through
/// it: on a busy machine the usual 1,000 are too few, and the kernel drops packets, which UDP does not
/// repeat.
const BACKLOG: u32 = 20_000;

/// Buckets of a namespace's own table of TCP sockets; half as many may be in `TIME_WAIT`.
const TCP_BUCKETS: &str = "16384";

/// Without the right to do so, for instance in a container, the queue stays as it is.
fn give_backlog_room() {
    const PATH: &str = "/proc/sys/net/core/netdev_max_backlog";
    let now = fs::read_to_string(PATH).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if now.is_some_and(|now| now < BACKLOG) {
        let _ = fs::write(PATH, BACKLOG.to_string());
    }
}

const XTABLES_LOCK: &str = "/run/xtables.lock";

/// Mounts a file of its own over the lock of iptables-legacy, for this thread and its children. Tests that
/// run at a time would wait for each other otherwise, on a busy machine for longer than the program does.
fn mount_own_lock() -> io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let bind =
        |source: Option<&Path>, target, flags| mount(source, target, None::<&str>, flags, None::<&str>);
    bind(None, "/", MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    // In a namespace that was made inside another one, that one's file is there, which has no name to mount
    // over.
    let _ = umount2(XTABLES_LOCK, MntFlags::MNT_DETACH);
    let lock_file = |path: &Path| File::options().append(true).create(true).mode(0o600).open(path);
    lock_file(Path::new(XTABLES_LOCK))?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let own = env::temp_dir().join(format!("xtables.lock.{}.{number}", std::process::id()));
    lock_file(&own)?;
    let mounted = bind(Some(&own), XTABLES_LOCK, MsFlags::MS_BIND);
    // The mount keeps the file.
    fs::remove_file(&own)?;
    Ok(mounted?)
}

impl Namespace {
    /// Makes an empty namespace with `lo` down, and with a lock for iptables-legacy of its own, as a pod has
    /// one. The first one of a process gives the machine's queue for received packets room for 20,000 of
    /// them.
    #[must_use]
    pub fn new() -> Self {
        static ROOM: Once = Once::new();
        ROOM.call_once(give_backlog_room);
        Self::child(None)
    }

    /// Makes an empty namespace with a small table of TCP sockets of its own: a list of sockets walks the
    /// whole table, and that of the machine has up to 524,288 buckets. Kernels before 6.1 have one table
    /// only.
    #[must_use]
    pub fn with_own_tcp_table() -> Self {
        static PARENT: OnceLock<Namespace> = OnceLock::new();
        Self::child(Some(PARENT.get_or_init(|| {
            let parent = Self::new();
            parent.run(|| {
                let _ = fs::write("/proc/sys/net/ipv4/tcp_child_ehash_entries", TCP_BUCKETS);
            });
            parent
        })))
    }

    /// Makes one on a thread in `parent`, or in the caller's.
    fn child(parent: Option<&Self>) -> Self {
        let make = || {
            if let Some(parent) = parent {
                parent.enter();
            }
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap_or_else(|error| {
                panic!("a network namespace cannot be made: {error}: run as root, with CAP_SYS_ADMIN")
            });
            mount_own_lock().unwrap_or_else(|error| panic!("{XTABLES_LOCK} cannot be mounted over: {error}"));
            let open =
                |kind| File::open(format!("/proc/thread-self/ns/{kind}")).expect("open the new namespace");
            Held { network: open("net"), mounts: Some(open("mnt")) }
        };
        let made = thread::scope(|scope| scope.spawn(make).join());
        Self(Arc::new(made.unwrap_or_else(|panic| resume_unwind(panic))))
    }

    /// The namespace of a process, as `/proc/<pid>/ns/net` names it.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        let path = format!("/proc/{pid}/ns/net");
        let network = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self(Arc::new(Held { network, mounts: None }))
    }

    /// Makes a namespace with `lo` up.
    #[must_use]
    pub fn with_loopback() -> Self {
        let namespace = Self::new();
        namespace.links(|links| links.up("lo"));
        namespace
    }

    /// Moves the calling thread, and only this thread, into the namespace.
    pub fn enter(&self) {
        if let Some(mounts) = &self.0.mounts {
            // The kernel puts the thread into the root directory.
            let directory = env::current_dir().expect("the current directory");
            unshare(CloneFlags::CLONE_FS).expect("a current directory of the thread's own");
            setns(mounts, CloneFlags::CLONE_NEWNS).expect("enter the mount namespace");
            env::set_current_dir(directory).expect("the same directory in the mount namespace");
        }
        setns(&self.0.network, CloneFlags::CLONE_NEWNET).expect("enter the network namespace");
    }

    /// Runs `work` on a thread of its own inside the namespace. A panic in there is a panic here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                work()
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// A path by which other processes can enter, as long as this value lives.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.network.as_raw_fd())
    }

    /// Runs lines of `ip` commands inside, in one process.
    pub fn ip(&self, lines: &str) {
        self.run(|| ip_batch(lines));
    }

    /// Changes links, addresses and routes inside.
    pub fn links<T: Send>(&self, change: impl FnOnce(&Links) -> T + Send) -> T {
        self.run(|| change(&Links::here()))
    }

    /// Joins this namespace with `other` by a veth pair: `name` here, `other_name` there. Both ends are up.
    pub fn connect(&self, name: &str, other: &Self, other_name: &str) {
        self.links(|links| {
            links.add_veth(name, other, other_name);
            links.up(name);
        });
        other.links(|links| links.up(other_name));
    }

    /// Gives an address to a link. An IPv6 address is usable at once, without duplicate address detection.
    pub fn add_address(&self, address: IpAddr, prefix: u8, link: &str) {
        self.links(|links| links.add_address(address, prefix, link));
    }

    /// The file that holds the namespace.
    pub(crate) fn file(&self) -> &File {
        &self.0.network
    }

    /// Waits until packets to all IPv6 addresses of the namespace are delivered. The kernel adds the route
    /// for that in its own time after the address and the carrier, on a busy machine seconds later.
    pub fn await_ipv6_addresses(&self) {
        let end = Instant::now() + PATIENCE;
        self.run(|| {
            while let Some(address) = unrouted_address() {
                assert!(Instant::now() < end, "no local route for {address} after {PATIENCE:?}");
                thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

/// An IPv6 address here that no route leads to the machine itself for; 32 hexadecimal digits.
fn unrouted_address() -> Option<String> {
    let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let is_local = |line: &&str| {
        let flags = line.split_whitespace().nth(8).and_then(|flags| u32::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & RTF_LOCAL != 0)
    };
    let (addresses, routes) = (read("if_inet6"), read("ipv6_route"));
    let routed: HashSet<String> = routes.lines().filter(is_local).map(first).collect();
    addresses.lines().map(first).find(|address| !routed.contains(address))
}

/// The flag of a route to the machine itself, in `/proc/net/ipv6_route`.
const RTF_LOCAL: u32 = 0x8000_0000;
/// Timeout of a busy kernel.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `test` on a thread of its own in a new namespace whose `lo` is up.
pub fn in_new_namespace<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    Namespace::with_loopback().run(test)
}

/// Runs lines of `ip` commands where the calling thread is, in one process.
pub fn ip_batch(lines: &str) {
    process::run_with_input("ip", &["-force", "-batch", "-"], lines);
}
