//! The processes of a network namespace, as `/proc` shows them.

use std::fs;
use std::io;
use std::path::Path;

use super::procfs;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The name of its program; at most 15 bytes.
    pub name: String,
    /// The user of the sockets that it makes.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// Its mount namespace: the processes of a container share one.
    pub mounts: Option<String>,
}

/// The processes of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// Those that are in it.
    pub found: Vec<Process>,
    /// How many there are whose namespace may not be read.
    pub unreadable: usize,
}

/// The processes in the current thread's network namespace, as far as this process's `/proc` shows them.
///
/// # Errors
/// `/proc` is not mounted.
pub fn in_network_namespace() -> io::Result<Processes> {
    let own =
        ["/proc/thread-self/ns/net", "/proc/self/ns/net"].iter().find_map(|path| fs::read_link(path).ok());
    let own = own.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut processes = Processes::default();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        match fs::read_link(path.join("ns/net")) {
            Ok(found) if found == own => processes.found.extend(process(&path, pid)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => processes.unreadable += 1,
            // In another one, or ended meanwhile.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(processes)
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

/// Whether a process has one of these sockets open.
#[must_use]
pub fn has_socket(pid: u32, inodes: &[u32]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let names = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect::<Vec<_>>();
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).any(|link| names.contains(&link))
}
