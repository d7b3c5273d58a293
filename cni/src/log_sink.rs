//! Log output: standard error at once; at the end of the command the agent's `log.sock`, if it exists, and a
//! file with rotation.
//!
//! The socket's protocol is that of Istio's agent: an HTTP request with the lines as a JSON array of strings.
//! Nothing here fails a command or delays it noticeably: a line that cannot be written is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::socket::{MsgFlags, send};

use crate::state::is_at;
use crate::unix_socket::connect_nonblocking;

/// The socket of the agent for log lines, in the run directory.
pub const SOCKET: &str = "log.sock";
/// The file, in the run directory; the one before has [`OLD`] added.
pub const FILE: &str = "istio-cni.log";
/// The ending of the earlier file.
pub const OLD: &str = ".1";
/// The size from which on a file becomes the earlier one, in bytes.
pub const LARGEST: u64 = 1 << 20;

/// Lines that are not delivered yet, and the run directory.
static PENDING: Mutex<(Vec<u8>, Option<PathBuf>)> = Mutex::new((Vec::new(), None));

fn pending() -> MutexGuard<'static, (Vec<u8>, Option<PathBuf>)> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogSink;

impl Write for LogSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        pending().0.extend_from_slice(bytes);
        // Standard error may be closed: the others are not to miss the line.
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sets the run directory. Without one nothing is delivered.
pub fn set_run_dir(path: PathBuf) {
    pending().1 = Some(path);
}

/// Delivers what was logged since the last time.
pub fn deliver() {
    let (bytes, run_dir) = std::mem::take(&mut *pending());
    let Some(run_dir) = run_dir.filter(|_| !bytes.is_empty()) else { return };
    // There may be no agent, no directory, or no space.
    let _ = send_to(&run_dir.join(SOCKET), &bytes);
    let _ = append(&run_dir, &bytes);
}

/// Nothing is waited for: what does not fit into the socket's buffer is in the file.
fn send_to(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let stream = connect_nonblocking(path)?;
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    let body = serde_json::to_vec(&lines)?;
    let head = format!(
        "POST /log HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    send(stream.as_raw_fd(), &[head.as_bytes(), &body].concat(), MsgFlags::MSG_NOSIGNAL)?;
    Ok(())
}

/// Appends with one write, so that lines of processes that run at the same time do not mix. Without
/// `O_NONBLOCK`, opening a FIFO waits for a reader.
fn append(run_dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = run_dir.join(FILE);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(OFlag::O_NONBLOCK.bits());
    let mut file = options.open(&path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    file.write_all(bytes)?;
    if file.metadata()?.len() < LARGEST {
        return Ok(());
    }
    rotate(&path, file)
}

/// Only the process that has the lock of the file that has this name gives it the other name: each file is
/// rotated once.
fn rotate(path: &Path, file: File) -> io::Result<()> {
    let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(()) };
    if is_at(&file, path) {
        let mut old = path.as_os_str().to_owned();
        old.push(OLD);
        fs::rename(path, old)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn file_is_rotated_and_no_line_is_lost_meanwhile() {
        const WRITERS: usize = 8;
        const LINES: usize = 30;
        let folder = tempfile::tempdir().unwrap();
        // All in all more than one file and less than two: one rotation, and every line is in one of the two.
        let line = |writer: usize, number: usize| format!("{writer} {number} {}\n", "x".repeat(7000));
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let folder = folder.path();
                scope.spawn(move || {
                    for number in 0..LINES {
                        append(folder, line(writer, number).as_bytes()).unwrap();
                    }
                });
            }
        });
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let (new, old) = (read(FILE), read(&format!("{FILE}{OLD}")));
        assert!(u64::try_from(old.len()).unwrap() >= LARGEST && !new.is_empty());
        let mut found: Vec<&str> = old.lines().chain(new.lines()).collect();
        found.sort_unstable();
        let mut wanted: Vec<String> =
            (0..WRITERS).flat_map(|writer| (0..LINES).map(move |number| line(writer, number))).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted.iter().map(|line| line.trim_end()).collect::<Vec<_>>());
    }

    /// Opening a FIFO waits for its other end.
    #[test]
    fn irregular_file_delays_nothing() {
        use std::sync::mpsc;
        use std::time::Duration;

        use nix::sys::stat::Mode;
        use nix::unistd::mkfifo;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let attempt = || {
            let (run_dir, (send, ended)) = (folder.path().to_owned(), mpsc::channel());
            std::thread::spawn(move || send.send(append(&run_dir, b"x\n")));
            ended.recv_timeout(Duration::from_secs(60)).expect("it ends")
        };
        attempt().unwrap_err();
        // Nor is anything written to a process that reads it.
        let mut options = OpenOptions::new();
        let mut reader = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&path).unwrap();
        attempt().unwrap_err();
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn directory_that_cannot_be_used_costs_lines_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        append(&file, b"x\n").unwrap_err();
        send_to(&folder.path().join(SOCKET), b"x\n").unwrap_err();
    }
}
