//! The plugin's side of the agent's socket. Nothing blocks: neither an agent that does not accept nor one
//! that does not respond is waited for longer than its time.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use istio_iptables::text::{one_line, path_shown};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;

use super::{KnownPod, LARGEST, Query, Response, VERSION};
use crate::deadline::{Deadline, Interrupted};
use crate::environment::PodName;
use crate::unix_socket::connect_nonblocking;

/// How much earlier than the plugin the agent gives up, so that its response says why.
const MARGIN: Duration = Duration::from_millis(50);

/// The time to wait before a connection to an agent that accepts none is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// Why no pod was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The API server knows no such pod.
    NotFound,
    /// What went wrong.
    Problem(String),
    /// The runtime ended this process.
    Interrupted(Interrupted),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Problem(error.to_string())
    }
}

impl From<Interrupted> for Failure {
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

/// A connection to the agent, and until when it may be used.
struct Session<'a> {
    deadline: &'a Deadline,
    path: PathBuf,
    within: Duration,
    end: Duration,
}

/// Asks the agent for a pod. With `refresh` the agent asks the API server, whatever it knows.
///
/// # Errors
/// There is no response about this pod within the time, or it does not exist.
pub fn ask(
    run_dir: &Path,
    pod: &PodName,
    refresh: bool,
    within: Duration,
    deadline: &Deadline,
) -> Result<KnownPod, Failure> {
    let within = within.min(deadline.remaining());
    let session =
        Session { deadline, path: super::socket(run_dir), within, end: deadline.elapsed() + within };
    let query = Query {
        version: VERSION,
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        refresh,
        wait_ms: u64::try_from(within.saturating_sub(MARGIN).as_millis()).unwrap_or(u64::MAX),
    };
    match session.exchange(&query)? {
        Response::Pod(known) if known.is(pod) => Ok(*known),
        // The event may have no room for the names, which are in it already.
        Response::Pod(known) => Err(Failure::Problem(format!(
            "the runtime starts uid {:?}, the response has uid {:?} of pod {}/{}",
            pod.uid, known.uid, known.namespace, known.name
        ))),
        Response::NotFound => Err(Failure::NotFound),
        Response::Unknown(problem) => Err(Failure::Problem(one_line(&problem).into_owned())),
    }
}

/// Whether an agent listens.
///
/// # Errors
/// Why not.
pub fn connects(run_dir: &Path, deadline: &Deadline) -> Result<(), String> {
    let path = super::socket(run_dir);
    let session = Session { deadline, path, within: Duration::ZERO, end: deadline.elapsed() };
    match session.connect() {
        Ok(_) => Ok(()),
        Err(Failure::Problem(problem)) => Err(problem),
        Err(Failure::NotFound) => Err("not found".to_owned()),
        Err(Failure::Interrupted(interrupted)) => Err(interrupted.to_string()),
    }
}

impl Session<'_> {
    fn exchange(&self, query: &Query) -> Result<Response, Failure> {
        let mut stream = self.connect()?;
        let text = serde_json::to_vec(query).map_err(io::Error::from)?;
        self.write(&mut stream, &text)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let bytes = self.read(&mut stream)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::Problem(format!("the agent's response is invalid: {error}")))
    }

    fn connect(&self) -> Result<UnixStream, Failure> {
        let problem = |error: Errno| {
            let is_absent = matches!(error, Errno::ENOENT | Errno::ECONNREFUSED);
            let hint = if is_absent { "; is install-cni --node-name running?" } else { "" };
            Failure::Problem(format!("{}: {}{hint}", path_shown(&self.path), error.desc()))
        };
        loop {
            match connect_nonblocking(&self.path) {
                Ok(stream) => {
                    self.require_own_user(&stream)?;
                    return Ok(stream);
                }
                // The queue of connections is full: the agent accepts none.
                Err(Errno::EAGAIN) => {}
                Err(error) => return Err(problem(error)),
            }
            let retry = (self.deadline.elapsed() + RETRY).min(self.end);
            // Nothing becomes readable on a socket that is not connected: this waits, or is ended by a
            // signal.
            self.deadline.pause(retry)?;
            if self.deadline.elapsed() >= self.end {
                return Err(self.late());
            }
        }
    }

    /// The socket's directory may be writable to others; their pods would decide for these.
    fn require_own_user(&self, stream: &UnixStream) -> Result<(), Failure> {
        let peer = getsockopt(stream, PeerCredentials).map_err(io::Error::from)?.uid();
        let own = geteuid().as_raw();
        if peer == own || peer == 0 {
            return Ok(());
        }
        Err(Failure::Problem(format!("{}: served by user {peer}, expected {own}", path_shown(&self.path))))
    }

    fn late(&self) -> Failure {
        Failure::Problem(format!("no response within {} ms", self.within.as_millis()))
    }

    fn wait(&self, stream: &UnixStream, events: PollFlags) -> Result<(), Failure> {
        if self.deadline.wait_until(stream, events, self.end)? { Ok(()) } else { Err(self.late()) }
    }

    fn write(&self, stream: &mut UnixStream, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(stream, PollFlags::POLLOUT)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(&self, stream: &mut UnixStream) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        loop {
            self.wait(stream, PollFlags::POLLIN)?;
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(bytes),
                Ok(length) => bytes.extend(buffer.get(..length).unwrap_or_default()),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
            if bytes.len() > LARGEST {
                let problem = format!("the agent's response is larger than {} KiB", LARGEST >> 10);
                return Err(Failure::Problem(problem));
            }
            // An agent that sends without end keeps the socket readable.
            if self.deadline.elapsed() >= self.end {
                return Err(self.late());
            }
        }
    }
}
