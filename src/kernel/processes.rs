//! The processes of a network namespace, as `/proc` shows them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{netns, procfs, recording};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The name of its program; at most 15 bytes.
    pub name: String,
    /// The user of the sockets that it makes.
    pub uid: u32,
    /// The group of the sockets that the process makes.
    pub gid: u32,
    /// The mount namespace of the process: the processes of a container share one.
    pub mounts: Option<String>,
}

/// The processes of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// The processes that are in the network namespace.
    pub found: Vec<Process>,
    /// The processes whose network namespace may not be read: they may be in this one.
    pub unreadable: Vec<Process>,
}

/// The processes in the current thread's network namespace, as far as this process's `/proc` shows them.
///
/// # Errors
/// `/proc` is not mounted.
pub fn in_network_namespace() -> io::Result<Processes> {
    let text = recording::text("processes", &mut || Ok(listed()?.lines()))?;
    Ok(Processes::of_lines(&text))
}

/// In the place of the mount namespace of a process of which it is not known.
const NO_MOUNTS: &str = "-";
/// In the place of the mount namespace of a process whose network namespace is not known either.
const UNREADABLE: &str = "?";

impl Processes {
    /// A line for each process.
    fn lines(&self) -> String {
        let line = |Process { pid, name, uid, gid, mounts }: &Process, unknown: &str| {
            format!("{pid} {uid} {gid} {} {name}\n", mounts.as_deref().unwrap_or(unknown))
        };
        let unreadable = self.unreadable.iter().map(|process| line(process, UNREADABLE));
        unreadable.chain(self.found.iter().map(|process| line(process, NO_MOUNTS))).collect()
    }

    fn of_lines(text: &str) -> Self {
        let process = |line: &str| {
            let mut words = line.splitn(5, ' ');
            Some(Process {
                pid: words.next()?.parse().ok()?,
                uid: words.next()?.parse().ok()?,
                gid: words.next()?.parse().ok()?,
                mounts: words.next().filter(|mounts| *mounts != NO_MOUNTS).map(str::to_owned),
                name: words.next()?.to_owned(),
            })
        };
        let is_unreadable = |process: &Process| process.mounts.as_deref() == Some(UNREADABLE);
        let (unreadable, found) = text.lines().filter_map(process).partition(is_unreadable);
        Self { found, unreadable }
    }
}

fn listed() -> io::Result<Processes> {
    let own =
        ["/proc/thread-self/ns/net", "/proc/self/ns/net"].iter().find_map(|path| fs::read_link(path).ok());
    let own = own.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "/proc is not mounted"))?;
    let this = this_and_its_parents();
    let mut processes = Processes::default();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        // This process has nothing to capture, nor has the shell in which it runs.
        if this.contains(&pid) {
            continue;
        }
        match fs::read_link(path.join("ns/net")) {
            Ok(found) if found == own => processes.found.extend(process(&path, pid)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let unreadable = process(&path, pid).map(|process| Process { mounts: None, ..process });
                processes.unreadable.extend(unreadable);
            }
            // In another one, or ended meanwhile.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(processes)
}

fn this_and_its_parents() -> Vec<u32> {
    let mut all = vec![std::process::id()];
    let parent = |pid: u32| {
        let status = procfs::read(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok().filter(|parent| *parent != 0)
    };
    while let Some(next) = all.last().and_then(|last| parent(*last)) {
        all.push(next);
    }
    all
}

/// What a process is now; `None` if it has ended.
#[must_use]
pub fn current(pid: u32) -> Option<Process> {
    process(&Path::new("/proc").join(pid.to_string()), pid)
}

fn process(path: &Path, pid: u32) -> Option<Process> {
    const NAMES_OF_FILES: usize = 3;
    let status = procfs::read(path.join("status")).ok()?;
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    // Real, effective, saved, and that of the file system, which sockets get.
    let id = |name: &str| value(name)?.split_whitespace().nth(NAMES_OF_FILES)?.parse().ok();
    let mounts = fs::read_link(path.join("ns/mnt")).ok();
    Some(Process {
        pid,
        name: value("Name")?.trim().to_owned(),
        uid: id("Uid")?,
        gid: id("Gid")?,
        mounts: mounts.map(|mounts| mounts.to_string_lossy().into_owned()),
    })
}

/// The TCP ports that the containers of the pod declare, which the injector gives to the proxy. None if no
/// process of it may be read.
#[must_use]
pub fn declared_ports(processes: impl Iterator<Item = u32>) -> Vec<u16> {
    let mut pids: Vec<u32> = processes.collect();
    let text = recording::optional(|| {
        recording::text("ports that the pod declares", &mut || {
            let listed = pids.drain(..).find_map(|pid| {
                let environment = procfs::read(format!("/proc/{pid}/environ")).ok()?;
                let listed = environment.split('\0').find_map(|one| one.strip_prefix(DECLARED_PORTS))?;
                serde_json::from_str::<Vec<Value>>(listed).ok()
            });
            let is_tcp = |port: &&Value| port["protocol"].as_str().is_none_or(|name| name == "TCP");
            let listed = listed.unwrap_or_default();
            let ports = listed.iter().filter(is_tcp).filter_map(|port| port["containerPort"].as_u64());
            Ok(ports.map(|port| format!("{port}\n")).collect())
        })
    });
    text.unwrap_or_default().lines().filter_map(|port| port.parse().ok()).collect()
}

/// The variable of the proxy's container with these ports, in JSON.
const DECLARED_PORTS: &str = "ISTIO_META_POD_PORTS=";

/// Whether a process has this socket open.
#[must_use]
pub fn has_socket(pid: u32, inode: u32) -> bool {
    open_sockets(pid).contains(&inode)
}

/// Which process has which of the sockets of a network namespace open.
#[derive(Debug, Default)]
pub struct Owners {
    pairs: Vec<(u32, u32)>,
}

impl Owners {
    /// Of the sockets that wait for packets.
    #[must_use]
    pub fn of(processes: &[Process], inodes: &[u32]) -> Self {
        let text = recording::text("processes with the sockets that wait for packets", &mut || {
            let mut lines = String::new();
            let mut hidden: Vec<u32> = inodes.to_vec();
            for Process { pid, .. } in processes {
                for inode in open_sockets(*pid).iter().filter(|inode| inodes.contains(inode)) {
                    hidden.retain(|other| other != inode);
                    lines.push_str(&format!("{pid} {inode}\n"));
                }
            }
            // Outside of containers every process is visible.
            hidden.retain(|_| !netns::is_outside_of_containers());
            hidden.iter().for_each(|inode| lines.push_str(&format!("{HIDDEN} {inode}\n")));
            Ok(lines)
        });
        let pair = |line: &str| {
            let (pid, inode) = line.split_once(' ')?;
            Some((pid.parse().ok()?, inode.parse().ok()?))
        };
        Self { pairs: text.unwrap_or_default().lines().filter_map(pair).collect() }
    }

    /// Whether a process has one of these sockets open.
    #[must_use]
    pub fn has_one(&self, pid: u32, inodes: &[u32]) -> bool {
        self.pairs.iter().any(|(owner, inode)| *owner == pid && inodes.contains(inode))
    }

    /// Whether the process that has the socket open is in a PID namespace that is not visible.
    #[must_use]
    pub fn is_hidden(&self, inode: u32) -> bool {
        self.has_one(HIDDEN, &[inode])
    }
}

/// In the place of a process that is not visible.
const HIDDEN: u32 = 0;

/// The sockets that a process has open.
fn open_sockets(pid: u32) -> Vec<u32> {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let inode = |link: PathBuf| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    links.filter_map(inode).collect()
}
