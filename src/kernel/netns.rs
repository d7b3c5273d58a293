//! Network namespaces: entering one, and what the tools need inside.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use super::memory;
use crate::text::path_shown;

/// A network namespace could not be entered.
#[derive(Debug)]
pub enum EnterError {
    /// There is no such file.
    Missing(PathBuf),
    /// The file is there, but it is not a network namespace.
    NotANamespace(PathBuf),
    /// CAP_SYS_ADMIN is missing, here or in the user namespace that owns the network namespace.
    NoPermission(PathBuf),
    /// Anything else.
    Other(PathBuf, io::Error),
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(
                f,
                "network namespace {}: no such file (has the process ended, or is the host's /proc or /run/netns not mounted here?)",
                path_shown(path)
            ),
            Self::NotANamespace(path) => write!(
                f,
                "{} is not a network namespace; expected a path like /proc/PID/ns/net or /run/netns/NAME",
                path_shown(path)
            ),
            Self::NoPermission(path) => write!(
                f,
                "no permission to enter the network namespace {}: CAP_SYS_ADMIN is needed (and CAP_SYS_PTRACE for another user's /proc/PID/ns)",
                path_shown(path)
            ),
            Self::Other(path, error) => {
                write!(f, "cannot enter the network namespace {}: {error}", path_shown(path))
            }
        }
    }
}

impl std::error::Error for EnterError {}

/// An open network namespace: what is behind its path later makes no difference.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    path: PathBuf,
}

/// What identifies a namespace as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceId {
    /// The device of its file.
    pub device: u64,
    /// The inode of its file.
    pub inode: u64,
}

impl NamespaceId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// The network namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn of_thread() -> io::Result<Self> {
        Ok(Self::of(&std::fs::metadata("/proc/thread-self/ns/net")?))
    }
}

/// Whether this process is in the first PID namespace of the machine, as no process of a container is, unless
/// the container shares the node's processes.
#[must_use]
pub fn is_outside_of_containers() -> bool {
    /// The kernel gives the first PID namespace this inode number (`PROC_PID_INIT_INO`).
    const FIRST: u64 = 0xEFFF_FFFC;
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|metadata| metadata.ino() == FIRST)
}

/// Whether this process is in the first network namespace of the machine, outside of containers.
#[must_use]
pub fn is_first_of_machine() -> bool {
    // The kernel registers this setting in the first network namespace only.
    is_outside_of_containers() && Path::new("/proc/sys/net/core/netdev_max_backlog").exists()
}

impl Namespace {
    /// Opens the network namespace at `path`. That it is one shows when it is entered.
    ///
    /// # Errors
    /// See [`EnterError`].
    pub fn open(path: &Path) -> Result<Self, EnterError> {
        let named = || path.to_path_buf();
        let file = open(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => EnterError::Missing(named()),
            Some(libc::EACCES | libc::EPERM) => EnterError::NoPermission(named()),
            _ => EnterError::Other(named(), error),
        })?;
        Ok(Self { file, path: named() })
    }

    /// When its file was made: not before the namespace, and for one that has a name in a directory of the
    /// runtime, with that.
    ///
    /// # Errors
    /// The file system does not respond.
    pub fn made(&self) -> io::Result<SystemTime> {
        self.file.metadata()?.modified()
    }

    /// What identifies it.
    ///
    /// # Errors
    /// The file system does not respond.
    pub fn id(&self) -> io::Result<NamespaceId> {
        Ok(NamespaceId::of(&self.file.metadata()?))
    }

    /// Whether it belongs to the user namespace of this process, as all do where the kernel does not say.
    #[must_use]
    pub fn is_of_own_user_namespace(&self) -> bool {
        match (self.user_namespace(), std::fs::metadata("/proc/thread-self/ns/user")) {
            // Of a user namespace that is none below this one.
            (Err(error), _) => error.kind() != io::ErrorKind::PermissionDenied,
            (Ok(owner), Ok(own)) => owner == NamespaceId::of(&own),
            (Ok(_), Err(_)) => true,
        }
    }

    /// The user namespace that it belongs to.
    ///
    /// # Errors
    /// The kernel does not say, or it is not the one of this process or one below.
    #[allow(unsafe_code, reason = "no safe wrapper has this ioctl")]
    pub(super) fn user_namespace(&self) -> io::Result<NamespaceId> {
        // SAFETY: it takes a descriptor, which is open, and no argument.
        let owner = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::NS_GET_USERNS) };
        if owner < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, for this process alone.
        let owner = File::from(unsafe { OwnedFd::from_raw_fd(owner) });
        Ok(NamespaceId::of(&owner.metadata()?))
    }

    /// Moves the current thread, and the processes it starts from now on, into it. Sockets that are open
    /// already stay where they were.
    ///
    /// # Errors
    /// See [`EnterError`].
    pub fn enter(&self) -> Result<(), EnterError> {
        let named = || self.path.clone();
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno as libc::c_int {
            // A namespace of another kind, and a file that is none.
            libc::EINVAL | libc::EBADF => EnterError::NotANamespace(named()),
            libc::EPERM => EnterError::NoPermission(named()),
            _ => EnterError::Other(named(), errno.into()),
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Moves the current thread, and the processes it starts from now on, into the network namespace at `path`.
/// Sockets that are open already stay where they were.
///
/// # Errors
/// See [`EnterError`].
pub fn enter(path: &Path) -> Result<(), EnterError> {
    Namespace::open(path)?.enter()
}

/// A file that lives in memory and is inherited by child processes; where no directory is writable.
#[derive(Debug)]
pub struct LockFile {
    file: File,
}

impl LockFile {
    /// The path under which a child process finds the file: a value for `XTABLES_LOCKFILE`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// A lock file for the iptables tools that needs no file system. It excludes no other run;
/// [`super::run_lock`] does.
///
/// # Errors
/// The kernel refuses to make one.
pub fn lock_file() -> io::Result<LockFile> {
    // Not close-on-exec: the child has to have it.
    Ok(LockFile { file: memory::file(c"xtables.lock", true)? })
}

/// Whether a child process finds such a lock file: its path is one of `/proc`.
#[must_use]
pub fn lock_file_usable() -> bool {
    lock_file().is_ok_and(|file| file.path().exists())
}

/// Private mounts could not be had.
#[derive(Debug)]
pub struct MountError {
    /// The failed operation.
    pub step: &'static str,
    /// The kernel's error.
    pub error: io::Error,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.error)
    }
}

impl std::error::Error for MountError {}

/// What names the sources of users and groups.
const NSSWITCH: &str = "/etc/nsswitch.conf";

/// Hides `/etc/nsswitch.conf` from this thread and its children, in a mount namespace of its own: the
/// iptables tools are about to run with the host's files in a pod's network, where a look-up of a name over
/// the network hangs.
///
/// # Errors
/// A failed mount operation. Nothing outside this thread is changed in any case.
pub fn private_mounts_without_nss() -> Result<(), MountError> {
    mounts_without_nss(&[MsFlags::MS_PRIVATE, MsFlags::MS_SLAVE])
}

/// Hides `/etc/nsswitch.conf` from a thread that goes on: it sees what is mounted and unmounted elsewhere,
/// and keeps no mount.
///
/// # Errors
/// As of [`private_mounts_without_nss`].
pub fn own_mounts_without_nss() -> Result<(), MountError> {
    if !Path::new(NSSWITCH).exists() {
        return Ok(());
    }
    mounts_without_nss(&[MsFlags::MS_SLAVE])
}

/// Of the kinds of propagation, the first one that can be had.
fn mounts_without_nss(kinds: &[MsFlags]) -> Result<(), MountError> {
    let failed = |step| move |errno: Errno| MountError { step, error: errno.into() };
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed("create a mount namespace"))?;
    // Without this, the mount below would spread to the host.
    let mut outcome = Ok(());
    for kind in kinds {
        outcome = propagation(*kind);
        if outcome.is_ok() {
            break;
        }
    }
    outcome.map_err(failed("make the mounts private"))?;
    let target = Path::new(NSSWITCH);
    if !target.exists() {
        return Ok(());
    }
    mount(Some("/dev/null"), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(failed("hide /etc/nsswitch.conf"))
}

fn propagation(kind: MsFlags) -> nix::Result<()> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | kind, None::<&str>)
}

/// Without waiting: a pipe given by mistake may have no writer.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs;
    use netlab::in_new_namespace;
    use netlab::process::run;

    #[test]
    fn namespace_errors_are_distinguished() {
        in_new_namespace(|| {
            assert!(matches!(enter(Path::new("/nonexistent/ns/net")), Err(EnterError::Missing(_))));
            assert!(matches!(enter(Path::new("/dev/null/net")), Err(EnterError::Missing(_))));
            assert!(matches!(enter(Path::new("/dev/null")), Err(EnterError::NotANamespace(_))));
            assert!(matches!(enter(Path::new("/proc/self/ns/uts")), Err(EnterError::NotANamespace(_))));
            assert!(matches!(enter(Path::new("/proc")), Err(EnterError::NotANamespace(_))));
        });
    }

    #[test]
    fn namespace_of_another_user_namespace_is_recognized() {
        let none: [(&str, &str); 0] = [];
        let kinds = netlab::Kinds { user: true, net: true, mount: false };
        let holder = netlab::Holder::new(kinds, "true", none);
        let is_own = |process: u32| {
            let path = format!("/proc/{process}/ns/net");
            Namespace::open(Path::new(&path)).unwrap().is_of_own_user_namespace()
        };
        assert!(is_own(std::process::id()));
        assert!(!is_own(holder.pid()));
    }

    #[test]
    fn entering_moves_the_thread_and_its_children() {
        in_new_namespace(|| {
            let mine = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
            let process = nix::unistd::getpid();
            let thread = nix::unistd::gettid();
            let path = format!("/proc/{process}/task/{thread}/ns/net");
            in_new_namespace(move || {
                enter(Path::new(&path)).unwrap();
                assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), mine);
                assert_eq!(run("readlink", &["/proc/self/ns/net"]).trim(), mine.to_string_lossy());
            });
        });
    }

    #[test]
    fn the_lock_file_serves_iptables_legacy() {
        in_new_namespace(|| {
            let file = lock_file().unwrap();
            let output = netlab::process::command("iptables-legacy", &["-w", "1", "-t", "nat", "-S"])
                .env("XTABLES_LOCKFILE", file.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
        });
    }

    #[test]
    fn nss_is_hidden_from_this_thread_only() {
        in_new_namespace(|| {
            private_mounts_without_nss().unwrap();
            if Path::new("/etc/nsswitch.conf").exists() {
                assert_eq!(run("cat", &["/etc/nsswitch.conf"]), "");
            }
        });
        let outside = procfs::read_if_present("/etc/nsswitch.conf").unwrap();
        assert_ne!(outside.as_deref(), Some(""), "the mount has spread to the host");
    }
}
