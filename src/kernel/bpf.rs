//! Which BPF programs are attached somewhere.
#![allow(unsafe_code, reason = "bpf(2) has no safe wrapper in std or nix")]

use std::collections::BTreeSet;
use std::io;

use super::recording;
use crate::model::{DeviceHook, Link};

/// `BPF_PROG_QUERY`: linux/bpf.h.
const PROG_QUERY: libc::c_int = 16;
/// Most programs of one hook: the kernel takes 64.
const MOST: usize = 256;
/// Where programs see packets of an interface without a filter of tc (`BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`), and whether these leave.
const TCX: [(u32, bool); 2] = [(46, false), (47, true)];

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
    // SAFETY: the size of `query` is passed with it, and its buffer has room for `count` numbers.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, &raw mut query, size_of::<Query>()) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    let count = usize::try_from(query.count).unwrap_or(MOST);
    Ok(numbers.into_iter().take(count).collect())
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

fn attached(link: u32, hook: u32) -> io::Result<BTreeSet<u32>> {
    match programs(link, hook, 0) {
        // Nothing is attached; or the kernel is older than 6.6.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENOSYS)) => {
            Ok(BTreeSet::new())
        }
        other => other,
    }
}
