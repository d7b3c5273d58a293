//! Sockets of the run directory.
//!
//! Each has one owner, which holds the lock of a file next to it. The kernel releases the lock whenever the
//! owner exits, and another waiting agent takes over. A socket that another program removes or replaces is
//! created again.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::error::InstallError;
use super::requests;
use crate::state::is_at;
use crate::unix_socket::connect_nonblocking;

/// The interval at which a socket is checked on which a process without our lock listens, or that cannot be
/// created or read.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// What happens to a socket on which a process listens that has no lock: Istio's agent, or an earlier version
/// of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlocked {
    /// The socket is left to that process until it ends.
    Wait,
    /// The socket is replaced.
    Replace,
}

/// A socket that is listened on, and the lock that makes this process its owner.
struct Owned {
    listener: UnixListener,
    /// Device and inode: another program may remove the socket, or put another in its place.
    id: (u64, u64),
    _lock: Flock<File>,
}

/// Receives requests in a thread until the process ends, as soon as this process is the socket's owner: see
/// [`requests::receive`].
///
/// # Errors
/// The socket cannot be made.
pub(super) fn serve(
    path: &Path,
    name: &str,
    unlocked: Unlocked,
    is_complete: impl Fn(&[u8], bool) -> bool + Send + 'static,
    mut handle: impl FnMut(UnixStream, Vec<u8>) + Send + 'static,
) -> Result<(), InstallError> {
    let failed = |error: io::Error| InstallError::io("listen on", path, &error);
    let owned = Owned::now(path, unlocked).map_err(failed)?;
    match &owned {
        Some(_) => log::info!(socket = path_shown(path); "listening"),
        None => log::warn!(socket = path_shown(path); "another process listens until it ends"),
    }
    let path_to_own = path.to_owned();
    let mut first = owned;
    let receive = move || {
        let path = path_to_own;
        loop {
            let owned = first.take().unwrap_or_else(|| Owned::wait(&path, unlocked));
            match requests::receive(&owned.listener, || owned.is_at(&path), &is_complete, &mut handle) {
                Ok(()) => log::warn!(socket = path_shown(&path); "removed or replaced by another program"),
                Err(error) => {
                    log::error!(socket = path_shown(&path); "requests are not received: {error}");
                    thread::sleep(TAKE_OVER);
                }
            }
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(receive).map_err(failed)?;
    Ok(())
}

impl Owned {
    /// `None`: another process is the owner, or listens.
    fn now(path: &Path, unlocked: Unlocked) -> io::Result<Option<Self>> {
        match lock(path, FlockArg::LockExclusiveNonblock)? {
            Some(lock) if unlocked == Unlocked::Replace || !is_served(path) => {
                Self::bind(path, lock).map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Waits until this process is the owner. An error is logged once: the directory may be missing, or full,
    /// for a while.
    fn wait(path: &Path, unlocked: Unlocked) -> Self {
        let mut failure = String::new();
        loop {
            match Self::locked(path, unlocked) {
                Ok(owned) => {
                    log::info!(socket = path_shown(path); "listening");
                    return owned;
                }
                Err(error) => {
                    let error = error.to_string();
                    if failure != error {
                        log::error!(socket = path_shown(path); "not listening: {error}");
                    }
                    failure = error;
                    thread::sleep(TAKE_OVER);
                }
            }
        }
    }

    fn locked(path: &Path, unlocked: Unlocked) -> io::Result<Self> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        loop {
            let Some(lock) = lock(path, FlockArg::LockExclusive)? else { continue };
            // With the lock, so that of several agents one waits for that process.
            while unlocked == Unlocked::Wait && is_served(path) {
                thread::sleep(TAKE_OVER);
            }
            return Self::bind(path, lock);
        }
    }

    /// By another name first: at each moment the socket is one that is listened on, and for this user alone.
    /// Only the owner uses that name.
    fn bind(path: &Path, lock: Flock<File>) -> io::Result<Self> {
        let temporary = beside(path, "tmp");
        remove(&temporary)?;
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, Permissions::from_mode(0o600))?;
        let id = id(&fs::symlink_metadata(&temporary)?);
        fs::rename(&temporary, path)?;
        Ok(Self { listener, id, _lock: lock })
    }

    /// Whether clients still find this socket.
    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|there| id(&there) == self.id)
    }
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// A file next to a socket.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Locks a socket. `None`: another process has the lock, if that is not to be waited for.
fn lock(path: &Path, how: FlockArg) -> io::Result<Option<Flock<File>>> {
    let path = beside(path, "lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    loop {
        match Flock::lock(options.open(&path)?, how) {
            // Between the two, `remove_abandoned` may have removed it.
            Ok(lock) if is_at(&lock, &path) => return Ok(Some(lock)),
            Ok(_) | Err((_, Errno::EINTR)) => {}
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(error.into()),
        }
    }
}

/// Whether a process listens on a socket.
pub(super) fn is_served(path: &Path) -> bool {
    matches!(connect_nonblocking(path), Ok(_) | Err(Errno::EAGAIN))
}

/// Removes a socket that has no owner and on which no process listens, if it is there.
///
/// # Errors
/// It cannot be removed.
pub(super) fn remove_abandoned(path: &Path) -> Result<(), InstallError> {
    let failed = |error: io::Error| InstallError::io("remove", path, &error);
    // Its lock would be a new file, for which there may be no space.
    if [path.to_owned(), beside(path, "lock")].iter().all(|path| path.symlink_metadata().is_err()) {
        return Ok(());
    }
    let Some(_lock) = lock(path, FlockArg::LockExclusiveNonblock).map_err(failed)? else { return Ok(()) };
    if !is_served(path) {
        remove(path).map_err(failed)?;
    }
    // The lock's file last: an agent that waits for it makes another.
    remove(&beside(path, "lock")).map_err(failed)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::Shutdown;
    use std::time::Instant;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn socket_has_one_owner_whose_end_frees_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let first = Owned::now(&path, Unlocked::Replace).unwrap().unwrap();
        assert!(Owned::now(&path, Unlocked::Replace).unwrap().is_none());
        assert!(is_served(&path));
        assert_eq!(names(folder.path()), ["agent.sock", "agent.sock.lock"]);
        remove_abandoned(&path).unwrap();
        assert!(is_served(&path), "a socket with a listener stays");
        let waiting = thread::spawn({
            let path = path.clone();
            move || Owned::wait(&path, Unlocked::Replace)
        });
        drop(first);
        let second = waiting.join().unwrap();
        assert!(is_served(&path));
        drop(second);
        assert!(!is_served(&path));
        remove_abandoned(&path).unwrap();
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn process_without_the_lock_keeps_its_socket_or_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.sock");
        let other = UnixListener::bind(&path).unwrap();
        assert!(Owned::now(&path, Unlocked::Wait).unwrap().is_none());
        remove_abandoned(&path).unwrap();
        assert_eq!(names(folder.path()), ["log.sock"]);
        drop(other);
        let owned = Owned::now(&path, Unlocked::Wait).unwrap().unwrap();
        drop(owned);
        let _other = UnixListener::bind(folder.path().join("agent.sock")).unwrap();
        assert!(Owned::now(&folder.path().join("agent.sock"), Unlocked::Replace).unwrap().is_some());
    }

    /// Cleaners of `/var/run`, and other agents that uninstall.
    #[test]
    fn socket_that_is_removed_or_replaced_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = folder.path().join("run");
        fs::create_dir(&run_dir).unwrap();
        let path = run_dir.join("agent.sock");
        let has_ended = |_: &[u8], has_ended| has_ended;
        let echo = |mut stream: UnixStream, bytes: Vec<u8>| drop(stream.write_all(&bytes));
        serve(&path, "echo", Unlocked::Replace, has_ended, echo).unwrap();
        let responds = || -> io::Result<()> {
            let mut stream = UnixStream::connect(&path)?;
            // A socket that another process has bound does not respond.
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"x")?;
            stream.shutdown(Shutdown::Write)?;
            let mut response = Vec::new();
            stream.read_to_end(&mut response)?;
            if response == b"x" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        };
        let comes_back = || {
            let begin = Instant::now();
            while let Err(error) = responds() {
                assert!(begin.elapsed() < Duration::from_secs(120), "{error}");
                thread::sleep(Duration::from_millis(20));
            }
        };
        comes_back();
        fs::remove_file(&path).unwrap();
        comes_back();
        // With its lock.
        fs::remove_dir_all(&run_dir).unwrap();
        comes_back();
        assert_eq!(names(&run_dir), ["agent.sock", "agent.sock.lock"]);
        fs::remove_file(&path).unwrap();
        let _replacing = UnixListener::bind(&path);
        comes_back();
    }

    #[test]
    fn lock_of_a_removed_file_is_not_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let held = lock(&path, FlockArg::LockExclusive).unwrap();
        let waiting = thread::spawn({
            let path = path.clone();
            move || {
                lock(&path, FlockArg::LockExclusive)
                    .map(|lock| lock.is_some_and(|lock| is_at(&lock, &beside(&path, "lock"))))
            }
        });
        remove(&beside(&path, "lock")).unwrap();
        drop(held);
        assert!(waiting.join().unwrap().unwrap());
    }
}
