//! Load balancing at sockets, as Cilium and Calico do it with eBPF: a program of the cgroup replaces the address of a service when a
//! socket is connected, or a datagram is sent, and puts it back when an answer is read. No packet ever has it.
#![allow(
    unsafe_code,
    reason = "bpf(2) and the socket option SO_NETNS_COOKIE have no safe wrapper in std or nix"
)]

use std::fs::File;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Namespace;

/// `bpf` commands, types of programs and helpers: linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const CGROUP_SOCK_ADDR: u32 = 18;
const GET_NETNS_COOKIE: i32 = 122;
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Where programs are attached, for each family: connect and sendmsg, which send; recvmsg and getpeername, which tell.
const SENDING: [[u32; 2]; 2] = [[10, 14], [11, 15]];
const TELLING: [[u32; 2]; 2] = [[19, 29], [20, 30]];

/// Programs that replace an address at the sockets of one namespace, until this is dropped.
#[derive(Debug)]
pub struct SocketProgram(
    #[expect(dead_code, reason = "the kernel detaches them when these are closed")] Vec<OwnedFd>,
);

impl SocketProgram {
    /// Sockets of `namespace` that are connected to `service`, or send to it, get `backend` instead. What asks a socket for its peer,
    /// or reads an answer, gets `service`. Both are of one family.
    #[must_use]
    pub fn translating(namespace: &Namespace, service: IpAddr, backend: IpAddr) -> Self {
        Self::of(&File::open(root()).expect("open the root of cgroup v2"), namespace, service, backend)
    }

    /// The same at the sockets of one cgroup only.
    #[must_use]
    pub fn translating_in(cgroup: &Cgroup, namespace: &Namespace, service: IpAddr, backend: IpAddr) -> Self {
        Self::of(&File::open(&cgroup.0).expect("open a cgroup"), namespace, service, backend)
    }

    fn of(cgroup: &File, namespace: &Namespace, service: IpAddr, backend: IpAddr) -> Self {
        let cookie = namespace.run(cookie);
        let family = usize::from(service.is_ipv6());
        let sending = SENDING[family].map(|hook| (hook, service, backend));
        let telling = TELLING[family].map(|hook| (hook, backend, service));
        let attach = |(hook, from, to)| attach(cgroup, hook, &program(cookie, from, to));
        Self(sending.into_iter().chain(telling).map(attach).collect())
    }
}

/// The number by which programs know the current namespace.
fn cookie() -> u64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket on loopback");
    let (mut cookie, mut length) = (0u64, 8);
    // SAFETY: the kernel writes at most `length` bytes to `cookie`.
    let outcome = unsafe {
        let cookie = (&raw mut cookie).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, cookie, &raw mut length)
    };
    assert_eq!(outcome, 0, "SO_NETNS_COOKIE, of Linux 5.14: {}", io::Error::last_os_error());
    cookie
}

/// Where the cgroup is that all others are in.
fn root() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("read the mounts");
    let root =
        mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    root.expect("cgroup v2 must be mounted").into()
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
        let path = root().join(format!("netlab-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("make a cgroup");
        Self(path)
    }

    /// Puts a process into it.
    pub fn take(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("move a process to a cgroup");
    }
}

/// One instruction: its code, registers, offset and immediate value.
const fn instruction(code: u8, registers: [u8; 2], offset: i16, immediate: i32) -> [u8; 8] {
    let [destination, source] = registers;
    let ([a, b], [c, d, e, f]) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
    let registers =
        if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
    [code, registers, a, b, c, d, e, f]
}

/// Replaces `from` by `to` in the address of the hook, in the namespace with this cookie; allows everything.
fn program(cookie: u64, from: IpAddr, to: IpAddr) -> Vec<[u8; 8]> {
    let (from, to) = (words(from), words(to));
    // Where `struct bpf_sock_addr` has the address.
    let first = if from.len() == 1 { 4 } else { 8 };
    let places = || (first..).step_by(4);
    let half = |shift: u32| i32::from_ne_bytes((((cookie >> shift) & 0xffff_ffff) as u32).to_ne_bytes());
    // Instructions from test number `at` to the last two.
    let behind = |at: usize| i16::try_from(3 * (from.len() - at) + 2 * to.len()).expect("few");
    let mut program = vec![
        instruction(0xbf, [6, 1], 0, 0),                // r6 = context
        instruction(0x85, [0, 0], 0, GET_NETNS_COOKIE), // r0 = its namespace
        instruction(0x18, [1, 0], 0, half(0)),          // r1 = cookie, in two parts
        instruction(0x00, [0, 0], 0, half(32)),
        instruction(0x5d, [0, 1], behind(0), 0), // if r0 != r1: end
    ];
    for (at, (place, word)) in places().zip(&from).enumerate() {
        program.push(instruction(0x61, [2, 6], place, 0)); // w2 = word of the address
        program.push(instruction(0xb4, [3, 0], 0, *word)); // w3 = that of `from`
        program.push(instruction(0x5e, [2, 3], behind(at + 1), 0)); // if w2 != w3: end
    }
    for (place, word) in places().zip(&to) {
        program.push(instruction(0xb4, [2, 0], 0, *word));
        program.push(instruction(0x63, [6, 2], place, 0)); // word of the address = w2
    }
    program.push(instruction(0xb7, [0, 0], 0, 1)); // r0 = 1: allowed
    program.push(instruction(0x95, [0, 0], 0, 0)); // end
    program
}

fn words(address: IpAddr) -> Vec<i32> {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    bytes.chunks(4).map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn attach(cgroup: &File, hook: u32, program: &[[u8; 8]]) -> OwnedFd {
    /// The fields of `union bpf_attr` for `BPF_PROG_LOAD`, as far as they are used.
    #[repr(C)]
    struct Load {
        kind: u32,
        instructions: u32,
        program: *const [u8; 8],
        license: *const libc::c_char,
        log_level: u32,
        log_size: u32,
        log: *mut u8,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        hook: u32,
    }
    let mut log = vec![0u8; 1 << 16];
    let mut load = Load {
        kind: CGROUP_SOCK_ADDR,
        instructions: u32::try_from(program.len()).expect("few"),
        program: program.as_ptr(),
        license: c"GPL".as_ptr(),
        log_level: 1,
        log_size: 1 << 16,
        log: log.as_mut_ptr(),
        kernel_version: 0,
        flags: 0,
        name: *b"netlab_translate",
        interface: 0,
        hook,
    };
    load.name[15] = 0;
    let loaded = bpf(PROG_LOAD, &mut load);
    let loaded = loaded.unwrap_or_else(|error| {
        panic!(
            "a BPF program cannot be loaded: {error}\n{}",
            String::from_utf8_lossy(&log).trim_end_matches('\0')
        )
    });
    let mut link = [loaded.as_raw_fd().unsigned_abs(), cgroup.as_raw_fd().unsigned_abs(), hook, 0];
    bpf(LINK_CREATE, &mut link).expect("attach a BPF program to the root of cgroup v2")
}

/// Both commands yield a file.
fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `attributes`, which are as long as it is told, and what they point to, which outlives the call.
    let outcome =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    let file =
        RawFd::try_from(outcome).ok().filter(|file| *file >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}
