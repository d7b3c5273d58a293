//! Which BPF programs are attached somewhere.
#![allow(unsafe_code, reason = "bpf(2) has no safe wrapper in std or nix")]

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use super::recording;
use crate::model::{DeviceHook, Link};
use crate::ordered::Ordered as _;

/// Commands: linux/bpf.h.
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_QUERY: libc::c_int = 16;
const LINK_GET_FD_BY_ID: libc::c_int = 30;
const LINK_GET_NEXT_ID: libc::c_int = 31;
/// Most programs of one hook: the kernel takes 64.
const MOST: usize = 256;
/// Where programs see packets of an interface without a filter of tc (`BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`),
/// and whether these leave.
const TCX: [(u32, bool); 2] = [(46, false), (47, true)];

/// Where programs choose the socket for what arrives in a network namespace (`BPF_SK_LOOKUP`).
const SK_LOOKUP: u32 = 36;
/// A link of a program of type netfilter (`BPF_LINK_TYPE_NETFILTER`).
const NETFILTER: u32 = 10;

/// The numbers of the programs of a hook; `target` is a descriptor, or the number of an interface.
pub(super) fn programs(target: u32, hook: u32, flags: u32) -> io::Result<BTreeSet<u32>> {
    /// The fields of `union bpf_attr` for `BPF_PROG_QUERY`, as far as they are used.
    #[repr(C)]
    struct Query {
        target: u32,
        hook: u32,
        flags: u32,
        attach_flags: u32,
        programs: u64,
        count: u32,
        padding: u32,
    }
    let mut numbers = [0u32; MOST];
    let mut query = Query {
        target,
        hook,
        flags,
        attach_flags: 0,
        programs: numbers.as_mut_ptr().expose_provenance() as u64,
        count: u32::try_from(MOST).unwrap_or_default(),
        padding: 0,
    };
    call(PROG_QUERY, (&raw mut query).cast(), size_of::<Query>())?;
    let count = usize::try_from(query.count).unwrap_or(MOST);
    Ok(numbers.into_iter().take(count).into_set())
}

/// `attributes` are the fields of `union bpf_attr` for the command, as far as they are used.
fn call(command: libc::c_int, attributes: *mut c_void, size: usize) -> io::Result<libc::c_long> {
    // SAFETY: callers pass the size of what `attributes` points to, and buffers whose sizes are in there.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

/// The programs of tcx at these interfaces; none on a kernel without it.
///
/// # Errors
/// The kernel does not list programs.
pub fn at_interfaces(links: &[Link]) -> io::Result<Vec<DeviceHook>> {
    let text = recording::text("BPF programs at interfaces", &mut || {
        let mut lines = String::new();
        for link in links {
            for (hook, leaves) in TCX {
                for program in attached(link.index, hook)? {
                    lines.push_str(&format!("{leaves} {program} {}\n", link.name));
                }
            }
        }
        Ok(lines)
    })?;
    let of_line = |line: &str| {
        let (leaves, rest) = line.split_once(' ')?;
        let (program, interface) = rest.split_once(' ')?;
        let what = format!("a BPF program of tcx (number {program})");
        Some(DeviceHook { interface: interface.to_owned(), what, leaves: leaves == "true" })
    };
    Ok(text.lines().filter_map(of_line).collect())
}

/// The programs that choose the socket for what arrives in the current thread's network namespace.
///
/// # Errors
/// The kernel does not list programs.
pub fn at_socket_lookup() -> io::Result<Vec<u32>> {
    let text = recording::text("BPF programs at the look-up of sockets", &mut || {
        #[allow(clippy::disallowed_methods, reason = "a namespace, of which only the descriptor is of use")]
        let namespace = File::open("/proc/thread-self/ns/net")?;
        let found = attached(namespace.as_raw_fd().unsigned_abs(), SK_LOOKUP)?;
        Ok(found.iter().map(|program| format!("{program}\n")).collect())
    })?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// A program of type netfilter. The kernel does not say in which network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetfilterProgram {
    /// The id of the program.
    pub number: u32,
    /// The family of its packets, as `NFPROTO_IPV4`.
    pub family: u32,
    /// The number of the hook.
    pub hook: usize,
    /// The priority of the program among the base chains of the hook.
    pub priority: i32,
}

/// All programs of type netfilter of the machine; none before Linux 6.4.
///
/// # Errors
/// The kernel does not list links.
pub fn at_netfilter() -> io::Result<Vec<NetfilterProgram>> {
    let text = recording::text("BPF programs of type netfilter", &mut netfilter_links)?;
    let of_line = |line: &str| {
        let mut words = line.split(' ');
        Some(NetfilterProgram {
            number: words.next()?.parse().ok()?,
            family: words.next()?.parse().ok()?,
            hook: words.next()?.parse().ok()?,
            priority: words.next()?.parse().ok()?,
        })
    };
    Ok(text.lines().filter_map(of_line).collect())
}

fn netfilter_links() -> io::Result<String> {
    const ID: usize = size_of::<[u32; 3]>();
    let (mut lines, mut last) = (String::new(), 0u32);
    loop {
        // Where to begin, what is found, and flags.
        let mut next = [last, 0, 0];
        match call(LINK_GET_NEXT_ID, next.as_mut_ptr().cast(), ID) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(lines),
            other => other?,
        };
        last = next[1];
        let mut id = [last, 0, 0];
        // It may be gone by now.
        let Ok(link) = call(LINK_GET_FD_BY_ID, id.as_mut_ptr().cast(), ID) else { continue };
        let Ok(link) = i32::try_from(link) else { continue };
        // SAFETY: the kernel has just made it, for this process alone.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        // `struct bpf_link_info`: type, number, program, padding; then for this type family, hook, priority,
        // flags.
        let mut info = [0u32; 32];
        /// The fields of `union bpf_attr`.
        #[repr(C)]
        struct Query {
            link: u32,
            size: u32,
            info: u64,
        }
        let mut query = Query {
            link: link.as_raw_fd().unsigned_abs(),
            size: 128,
            info: info.as_mut_ptr().expose_provenance() as u64,
        };
        call(OBJ_GET_INFO_BY_FD, (&raw mut query).cast(), size_of::<Query>())?;
        if let [NETFILTER, _, program, _, family, hook, priority, ..] = info {
            lines.push_str(&format!("{program} {family} {hook} {}\n", priority.cast_signed()));
        }
    }
}

fn attached(target: u32, hook: u32) -> io::Result<BTreeSet<u32>> {
    match programs(target, hook, 0) {
        // Nothing is attached; or the kernel is older.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENOSYS)) => {
            Ok(BTreeSet::new())
        }
        other => other,
    }
}
