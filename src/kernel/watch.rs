//! Waits for changes of the rules, for signals, and for the end of a process, without a wake-up in between.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nfnetlink::nftables::{Change, Changes};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::procfs;

/// What ends a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Transactions of other processes changed rules of this network namespace.
    Changed(Vec<Change>),
    /// The process that is watched has ended.
    Ended,
    /// Rules changed so often that notices are lost.
    Lost,
    /// The time is up.
    OnTime,
    /// A signal asks for the end (SIGINT, SIGTERM).
    Stopped,
}

/// What is waited for.
#[derive(Debug)]
pub struct Watch {
    /// `None` without nf_tables.
    changes: Option<Changes>,
    signals: SignalFd,
    process: Option<Process>,
}

/// A process that is watched.
#[derive(Debug)]
pub enum Process {
    /// Whatever later has its number.
    Itself(OwnedFd),
    /// By its number, each time the wait ends: Linux before 5.3.
    Number(u32),
}

/// Begins to watch a process.
///
/// # Errors
/// There is no such process.
pub fn process(pid: u32) -> io::Result<Process> {
    match open_process(pid) {
        Ok(process) => Ok(Process::Itself(process)),
        Err(error) if error.raw_os_error() == Some(Errno::ENOSYS as i32) && exists(pid) => {
            Ok(Process::Number(pid))
        }
        Err(error) => Err(error),
    }
}

fn exists(pid: u32) -> bool {
    procfs::read(format!("/proc/{pid}/stat")).is_ok()
}

fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: it takes numbers only.
    #[allow(unsafe_code, reason = "pidfd_open(2) has no safe wrapper in std or nix")]
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nothing else has it.
    #[allow(unsafe_code, reason = "the descriptor of pidfd_open(2)")]
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl Watch {
    /// Begins to watch the network namespace of this thread and, if one is given, a process. Signals that ask
    /// for the end are no longer delivered to this thread.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(process: Option<Process>) -> io::Result<Self> {
        let mut asking = SigSet::empty();
        asking.add(Signal::SIGINT);
        asking.add(Signal::SIGTERM);
        asking.thread_block()?;
        let changes = match Changes::open() {
            Ok(changes) => Some(changes),
            // Such as gVisor, which has no netlink of netfilter.
            Err(error) if error.raw_os_error() == Some(Errno::EPROTONOSUPPORT as i32) => None,
            Err(error) => return Err(error),
        };
        let signals = SignalFd::with_flags(&asking, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { changes, signals, process })
    }

    /// Whether changes are noticed.
    #[must_use]
    pub const fn notices_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Waits, at most until then.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&mut self, until: Instant) -> io::Result<Woken> {
        loop {
            if let Some(woken) = self.wait_beside(None, until)? {
                return Ok(woken);
            }
        }
    }

    /// Waits, at most until then; `None` if `other` can be read, or nothing has happened.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait_beside(
        &mut self,
        other: Option<BorrowedFd<'_>>,
        until: Instant,
    ) -> io::Result<Option<Woken>> {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that the time is over afterwards.
        let left = left.checked_add(Duration::from_micros(999)).unwrap_or(left);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut all: Vec<BorrowedFd<'_>> = vec![self.signals.as_fd()];
        let process = match &self.process {
            Some(Process::Itself(process)) => Some(process.as_fd()),
            Some(Process::Number(_)) | None => None,
        };
        all.extend(process);
        all.extend(self.changes.iter().map(|changes| changes.as_fd()));
        all.extend(other);
        let mut all: Vec<_> = all.into_iter().map(|one| PollFd::new(one, PollFlags::POLLIN)).collect();
        match poll(&mut all, timeout) {
            Ok(0) if matches!(self.process, Some(Process::Number(pid)) if !exists(pid)) => {
                return Ok(Some(Woken::Ended));
            }
            Ok(0) => return Ok(Some(Woken::OnTime)),
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |one: Option<&PollFd<'_>>| one.is_some_and(|one| one.any().unwrap_or(false));
        let has_ended = process.is_some() && is_ready(all.get(1));
        let has_other = other.is_some() && is_ready(all.last());
        if is_ready(all.first()) && self.signals.read_signal()?.is_some() {
            return Ok(Some(Woken::Stopped));
        }
        if has_ended {
            return Ok(Some(Woken::Ended));
        }
        if has_other {
            return Ok(None);
        }
        Ok(match self.take()? {
            Some(changes) if changes.is_empty() => None,
            Some(changes) => Some(Woken::Changed(changes)),
            None => Some(Woken::Lost),
        })
    }

    /// The changes of other processes that were noticed so far; `None` if some notices are lost.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&mut self) -> io::Result<Option<Vec<Change>>> {
        self.changes.as_mut().map_or_else(|| Ok(Some(Vec::new())), Changes::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::nftables::{Client, inet};
    use netlab::in_new_namespace;
    use netlab::process::run;
    use nfnetlink::nftables::{Batch, Table};

    fn make_table(name: &str) {
        let mut batch = Batch::new();
        batch.create_table(&Table::new(inet(name)));
        Client::open().unwrap().commit(&batch).unwrap();
    }

    #[test]
    fn changes_of_this_process_are_known_by_the_port_and_not_by_the_name_of_the_program() {
        in_new_namespace(|| {
            let mut watch = Watch::new(None).unwrap();
            make_table("own");
            assert_eq!(watch.take().unwrap(), Some(Vec::new()));
            let folder = tempfile::tempdir().unwrap();
            let name = procfs::read_own("comm").unwrap().trim_end().to_owned();
            let namesake = folder.path().join(&name);
            let nft = ["/usr/sbin/nft", "/sbin/nft"].into_iter().find(|path| std::fs::exists(path).unwrap());
            std::fs::copy(nft.expect("nft"), &namesake).unwrap();
            run(namesake.to_str().unwrap(), &["add", "table", "inet", "foreign"]);
            make_table("own2");
            let taken = watch.take().unwrap().expect("no notice is lost");
            let programs: Vec<_> = taken.into_iter().map(|change| change.program).collect();
            assert_eq!(programs, [name]);
        });
    }
}
