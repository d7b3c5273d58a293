//! BPF programs that may choose another destination at the sockets of a process, or drop its packets: those
//! of its cgroup, and of the ones above.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::{bpf, procfs, recording};

/// The flag of a query for the programs of the cgroups above, too: linux/bpf.h.
const EFFECTIVE: u32 = 1;
/// Where programs replace a destination, by their names in the kernel.
const HOOKS: [(u32, &str); 4] = [(10, "connect4"), (11, "connect6"), (14, "sendmsg4"), (15, "sendmsg6")];
/// Where they drop packets.
const FILTERS: [(u32, &str); 2] = [(0, "cgroup_skb/ingress"), (1, "cgroup_skb/egress")];

/// The hooks with programs at the sockets of other processes, by process: those that replace a destination
/// and that this process's own sockets do not have, and apart from them those that drop packets. One process
/// of each cgroup is named.
///
/// # Errors
/// Cgroups are not mounted, or the kernel does not list programs.
pub fn of_processes(pids: &[u32]) -> io::Result<Vec<(u32, Vec<String>)>> {
    let text = recording::text("BPF programs at the sockets of other cgroups", &mut || {
        let line = |(pid, hooks): (u32, Vec<&str>)| format!("{pid} {}\n", hooks.join(" "));
        Ok(found(pids)?.into_iter().map(line).collect())
    })?;
    let of_line = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.parse().ok()?, words.map(str::to_owned).collect()))
    };
    Ok(text.lines().filter_map(of_line).collect())
}

fn found(pids: &[u32]) -> io::Result<Vec<(u32, Vec<&'static str>)>> {
    let own = path_of(&procfs::read_own("cgroup")?).ok_or(io::ErrorKind::NotFound)?;
    let mut cgroups = BTreeMap::new();
    for pid in pids {
        let path = procfs::read(format!("/proc/{pid}/cgroup")).ok().and_then(|text| path_of(&text));
        if let Some(path) = path {
            cgroups.entry(path).or_insert(*pid);
        }
    }
    if cgroups.is_empty() {
        return Ok(Vec::new());
    }
    let mounts = procfs::read_own("mountinfo")?;
    let known = HOOKS.map(|(hook, _)| programs(&mounts, &own, hook));
    let mut found = Vec::new();
    for (path, pid) in cgroups {
        // A cgroup may have gone meanwhile.
        let of_cgroup = |hook| programs(&mounts, &path, hook).unwrap_or_default();
        let mut hooks = Vec::new();
        for ((hook, name), known) in HOOKS.into_iter().zip(&known).filter(|_| path != own) {
            let known = known.as_ref().map_err(|error| io::Error::from(error.kind()))?;
            hooks.extend((!of_cgroup(hook).is_subset(known)).then_some(name));
        }
        let filters = FILTERS.into_iter().filter(|(hook, _)| !of_cgroup(*hook).is_empty());
        let filters = filters.map(|(_, name)| name).collect();
        found
            .extend([hooks, filters].into_iter().filter(|hooks| !hooks.is_empty()).map(|hooks| (pid, hooks)));
    }
    Ok(found)
}

/// The path in the hierarchy of version 2.
fn path_of(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

/// The numbers of the programs of a cgroup.
fn programs(mounts: &str, path: &str, hook: u32) -> io::Result<BTreeSet<u32>> {
    let directory = directory(mounts, path).ok_or(io::ErrorKind::NotFound)?;
    #[allow(clippy::disallowed_methods, reason = "a directory, of which only the descriptor is of use")]
    let cgroup = File::open(directory)?;
    bpf::programs(cgroup.as_raw_fd().unsigned_abs(), hook, EFFECTIVE)
}

/// Where a cgroup is mounted. Each line has the part of the hierarchy, then the place.
fn directory(mounts: &str, path: &str) -> Option<String> {
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut words = line.split(' ').skip(3);
    let (root, place) = (words.next()?, words.next()?);
    let inside = if root == "/" { path } else { path.strip_prefix(root)? };
    (!inside.split('/').any(|part| part == "..")).then(|| format!("{place}{inside}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_found_where_they_are_mounted() {
        let mounts =
            "22 1 0:20 / /proc rw - proc proc rw\n30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(directory(mounts, "/a/b").as_deref(), Some("/sys/fs/cgroup/a/b"));
        assert_eq!(directory(mounts, "/../b"), None);
        let part = "30 25 0:26 /a /cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(directory(part, "/a/b").as_deref(), Some("/cgroup/b"));
        assert_eq!(directory(part, "/b"), None);
        assert_eq!(path_of("9:pids:/x\n0::/y\n").as_deref(), Some("/y"));
    }
}
