//! BPF programs at the sockets of a namespace, and at its interfaces.
#![allow(
    unsafe_code,
    reason = "bpf(2) and the socket option SO_NETNS_COOKIE have no safe wrapper in std or nix"
)]

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use crate::Namespace;

/// `bpf` commands, types of programs and helpers: linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
pub(crate) const SOCK_OPS: u32 = 13;
pub(crate) const CGROUP_SOCK_ADDR: u32 = 18;
const GET_NETNS_COOKIE: i32 = 122;
const SO_NETNS_COOKIE: libc::c_int = 71;

pub(crate) type Instruction = [u8; 8];

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
pub(crate) fn root() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("read the mounts");
    let root =
        mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    root.expect("cgroup v2 must be mounted").into()
}

/// The cgroup that all others are in.
pub(crate) fn root_cgroup() -> File {
    File::open(root()).expect("open the root of cgroup v2")
}

/// One instruction: its code, registers, offset and immediate value.
pub(crate) const fn instruction(code: u8, registers: [u8; 2], offset: i16, immediate: i32) -> Instruction {
    let [destination, source] = registers;
    let ([a, b], [c, d, e, f]) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
    let registers =
        if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
    [code, registers, a, b, c, d, e, f]
}

/// Runs `body` in the namespace with this cookie.
fn in_namespace(cookie: u64, body: &[Instruction]) -> Vec<Instruction> {
    let half = |shift: u32| i32::from_ne_bytes((((cookie >> shift) & 0xffff_ffff) as u32).to_ne_bytes());
    let skip = i16::try_from(body.len()).expect("few");
    let mut program = vec![
        instruction(0xbf, [6, 1], 0, 0),                // r6 = context
        instruction(0x85, [0, 0], 0, GET_NETNS_COOKIE), // r0 = its namespace
        instruction(0x18, [1, 0], 0, half(0)),          // r1 = cookie, in two parts
        instruction(0x00, [0, 0], 0, half(32)),
        instruction(0x5d, [0, 1], skip, 0), // if r0 != r1: end
    ];
    program.extend(body);
    program.push(instruction(0xb7, [0, 0], 0, 1)); // r0 = 1: allowed
    program.push(instruction(0x95, [0, 0], 0, 0)); // end
    program
}

/// Attaches `body`, which finds the context in register 6, to sockets of `namespace` whose processes are in
/// `cgroup`. What it is run for is allowed. `kind` is the type of the program and its hook.
pub(crate) fn attach(
    cgroup: &File,
    (kind, hook): (u32, u32),
    namespace: &Namespace,
    body: &[Instruction],
) -> OwnedFd {
    let program = load((kind, hook), &in_namespace(namespace.run(cookie), body));
    link(&program, cgroup.as_raw_fd().unsigned_abs(), hook, 0)
}

/// Loads a program. `kind` is its type and its hook.
pub(crate) fn load((kind, hook): (u32, u32), program: &[Instruction]) -> OwnedFd {
    /// The fields of `union bpf_attr` for `BPF_PROG_LOAD`, as far as they are used.
    #[repr(C)]
    struct Load {
        kind: u32,
        instructions: u32,
        program: *const Instruction,
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
        kind,
        instructions: u32::try_from(program.len()).expect("few"),
        program: program.as_ptr(),
        license: c"GPL".as_ptr(),
        log_level: 1,
        log_size: 1 << 16,
        log: log.as_mut_ptr(),
        kernel_version: 0,
        flags: 0,
        name: *b"netlab\0\0\0\0\0\0\0\0\0\0",
        interface: 0,
        hook,
    };
    let loaded = call(PROG_LOAD, &mut load);
    loaded.unwrap_or_else(|error| {
        panic!(
            "a BPF program cannot be loaded: {error}\n{}",
            String::from_utf8_lossy(&log).trim_end_matches('\0')
        )
    })
}

/// Attaches a program until the result is closed; `target` is a descriptor, or the number of an interface.
pub(crate) fn link(program: &OwnedFd, target: u32, hook: u32, flags: u32) -> OwnedFd {
    let mut link = [program.as_raw_fd().unsigned_abs(), target, hook, flags];
    call(LINK_CREATE, &mut link).expect("attach a BPF program")
}

/// Calls `bpf` with a command that yields a file.
fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the size passed is that of `attributes`, and the buffers that they point to outlive the call.
    let outcome =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    let file =
        RawFd::try_from(outcome).ok().filter(|file| *file >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}
