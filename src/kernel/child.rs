//! Waits for a child process, for a limited time.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long to wait between two looks at a process that has closed its streams. It is about to end.
const INTERVAL: Duration = Duration::from_micros(50);

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The exit code of the program; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// One stream of a child.
#[derive(Default)]
struct Stream {
    /// `None` at its end.
    source: Option<File>,
    bytes: Vec<u8>,
}

impl Stream {
    fn new(source: Option<impl Into<OwnedFd>>) -> Self {
        Self { source: source.map(|source| File::from(source.into())), bytes: Vec::new() }
    }

    /// Reads what is there.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        let Some(source) = &mut self.source else { return Ok(()) };
        match source.read(&mut buffer) {
            Ok(0) => self.source = None,
            Ok(length) => self.bytes.extend(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The output of a child whose standard output and error are pipes.
///
/// # Errors
/// `TimedOut`: it ran too long, and was killed. It is killed as well if a pipe cannot be read.
pub(super) fn output(mut child: Child, timeout: Duration) -> io::Result<Output> {
    let deadline = Instant::now() + timeout;
    let mut streams = [Stream::new(child.stdout.take()), Stream::new(child.stderr.take())];
    let ended = read(&mut streams, deadline).and_then(|()| wait(&mut child, deadline));
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    let [stdout, stderr] = streams;
    Ok(Output { code: ended?.code(), stdout: stdout.text(), stderr: stderr.text() })
}

fn read(streams: &mut [Stream], deadline: Instant) -> io::Result<()> {
    while streams.iter().any(|stream| stream.source.is_some()) {
        for at in readable(streams, deadline)? {
            streams.get_mut(at).map_or(Ok(()), Stream::read)?;
        }
    }
    Ok(())
}

/// The streams that can be read without waiting.
fn readable(streams: &[Stream], deadline: Instant) -> io::Result<Vec<usize>> {
    let open = || streams.iter().enumerate().filter_map(|(at, stream)| Some((at, stream.source.as_ref()?)));
    let mut fds: Vec<_> = open().map(|(_, source)| PollFd::new(source.as_fd(), PollFlags::POLLIN)).collect();
    // Rounded up: a wait of 0 ms would be a busy loop.
    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
    match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) if Instant::now() >= deadline => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) => {
            let ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
            Ok(open().zip(&fds).filter(|(_, fd)| ready(fd)).map(|((at, _), _)| at).collect())
        }
        Err(Errno::EINTR) => Ok(Vec::new()),
        Err(errno) => Err(errno.into()),
    }
}

fn wait(child: &mut Child, deadline: Instant) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;
    use netlab::process::command;

    fn run(script: &str, timeout: Duration) -> io::Result<Output> {
        let mut shell = command("sh", &["-c", script]);
        let child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        output(child.unwrap(), timeout)
    }

    #[test]
    fn both_streams_are_read_to_their_end() {
        let script = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; printf x; exit 3";
        let Output { code, stdout, stderr } = run(script, Duration::from_secs(600)).unwrap();
        assert_eq!((code, stdout.len(), stderr.len()), (Some(3), 300_001, 300_000));
    }

    #[test]
    fn child_that_hangs_is_killed() {
        for script in ["exec sleep 1000", "exec sleep 1000 >&- 2>&-", "while :; do :; done"] {
            let error = run(script, Duration::from_millis(100)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{script}");
        }
    }
}
