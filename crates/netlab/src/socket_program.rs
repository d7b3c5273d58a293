//! Load balancing at sockets, as Cilium and Calico do it with eBPF: a program of the cgroup replaces the
//! address of a service when a socket is connected, or a datagram is sent, and puts it back when a response
//! is read. No packet ever has it.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Namespace;
use crate::bpf::{self, CGROUP_SOCK_ADDR, Instruction, instruction};

/// Where programs are attached, for each family: connect and sendmsg, which send; recvmsg and getpeername,
/// which tell.
const SENDING: [[u32; 2]; 2] = [[10, 14], [11, 15]];
const TELLING: [[u32; 2]; 2] = [[19, 29], [20, 30]];

/// Programs that replace an address at the sockets of one namespace, until this is dropped.
#[derive(Debug)]
pub struct SocketProgram(
    #[expect(dead_code, reason = "the kernel detaches them when these are closed")] Vec<OwnedFd>,
);

impl SocketProgram {
    /// Sockets of `namespace` that are connected to `service`, or send to it, get `backend` instead. What
    /// asks a socket for its peer, or reads a response, gets `service`. Both are of one family.
    #[must_use]
    pub fn translating(namespace: &Namespace, service: IpAddr, backend: IpAddr) -> Self {
        Self::of(&bpf::root_cgroup(), namespace, service, backend)
    }

    /// Does what [`Self::translating`] does, at the sockets of one cgroup only.
    #[must_use]
    pub fn translating_in(cgroup: &Cgroup, namespace: &Namespace, service: IpAddr, backend: IpAddr) -> Self {
        Self::of(&cgroup.open(), namespace, service, backend)
    }

    fn of(cgroup: &File, namespace: &Namespace, service: IpAddr, backend: IpAddr) -> Self {
        let family = usize::from(service.is_ipv6());
        let sending = SENDING[family].map(|hook| (hook, service, backend));
        let telling = TELLING[family].map(|hook| (hook, backend, service));
        let attach = |(hook, from, to)| {
            let program = program(from, to);
            bpf::attach(cgroup, (CGROUP_SOCK_ADDR, hook), namespace, &program)
        };
        Self(sending.into_iter().chain(telling).map(attach).collect())
    }
}

/// A cgroup of its own. It is gone when this is dropped, unless processes are in it.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

impl Default for Cgroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Cgroup {
    /// Makes one.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = bpf::root().join(format!("netlab-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("make a cgroup");
        Self(path)
    }

    pub(crate) fn open(&self) -> File {
        File::open(&self.0).expect("open a cgroup")
    }

    /// Puts a process into it.
    pub fn take(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("move a process to a cgroup");
    }
}

/// Replaces `from` by `to` in the address of the hook.
fn program(from: IpAddr, to: IpAddr) -> Vec<Instruction> {
    let (from, to) = (words(from), words(to));
    // Where `struct bpf_sock_addr` has the address.
    let first = if from.len() == 1 { 4 } else { 8 };
    let places = || (first..).step_by(4);
    // Instructions from test number `at` to the end.
    let behind = |at: usize| i16::try_from(3 * (from.len() - at) + 2 * to.len()).expect("few");
    let mut program = Vec::new();
    for (at, (place, word)) in places().zip(&from).enumerate() {
        program.push(instruction(0x61, [2, 6], place, 0)); // w2 = word of the address
        program.push(instruction(0xb4, [3, 0], 0, *word)); // w3 = that of `from`
        program.push(instruction(0x5e, [2, 3], behind(at + 1), 0)); // if w2 != w3: end
    }
    for (place, word) in places().zip(&to) {
        program.push(instruction(0xb4, [2, 0], 0, *word));
        program.push(instruction(0x63, [6, 2], place, 0)); // word of the address = w2
    }
    program
}

fn words(address: IpAddr) -> Vec<i32> {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    bytes.chunks(4).map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}
