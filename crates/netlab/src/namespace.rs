//! Network namespaces that belong to a test and vanish with it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;
use std::sync::{Arc, Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};

use crate::{Links, process};

/// A network namespace, held by a file descriptor: no name, nothing to clean up.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<File>);

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

/// Packets that wait for a processor. All namespaces share its queue, and what `veth` hands over goes through it: on a busy
/// machine the usual 1,000 are too few, and the kernel drops packets, which UDP does not repeat.
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

impl Namespace {
    /// Makes an empty namespace with `lo` down. The first one of a process gives the machine's queue for received packets room
    /// for 20,000 of them.
    #[must_use]
    pub fn new() -> Self {
        static ROOM: Once = Once::new();
        ROOM.call_once(give_backlog_room);
        Self::child(None)
    }

    /// The same, with a small table of TCP sockets of its own: a list of sockets walks the whole table, and that of the machine has
    /// up to 524,288 buckets. Kernels before 6.1 have one table only.
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
            unshare(CloneFlags::CLONE_NEWNET).unwrap_or_else(|error| {
                panic!("a network namespace cannot be made: {error}: run as root, with CAP_SYS_ADMIN")
            });
            File::open("/proc/thread-self/ns/net").expect("open the new network namespace")
        };
        let made = thread::scope(|scope| scope.spawn(make).join());
        Self(Arc::new(made.unwrap_or_else(|panic| resume_unwind(panic))))
    }

    /// The namespace of a process, as `/proc/<pid>/ns/net` names it.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        let path = format!("/proc/{pid}/ns/net");
        Self(Arc::new(File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"))))
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
        setns(&*self.0, CloneFlags::CLONE_NEWNET).expect("enter the network namespace");
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
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
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
        &self.0
    }

    /// Waits until packets to all IPv6 addresses of the namespace are delivered. The kernel adds the route for that in its own time
    /// after the address and the carrier, on a busy machine seconds later.
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
