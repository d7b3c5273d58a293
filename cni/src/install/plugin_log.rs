//! `log.sock`: log lines of the plugin become lines of the agent's log. Runtimes discard the plugin's standard error.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use serde_json::{Map, Value};

use super::error::InstallError;
use super::metrics::Metrics;
use super::pods::bind;
use super::requests;
use crate::log_sink::SOCKET;
use crate::unix_socket::connect_nonblocking;

/// How often a socket is looked at on which another process listens.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// Copies log lines to standard error until the process ends. A socket on which another agent listens is left to it until that
/// one ends.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(run_dir: &Path, metrics: &Arc<Metrics>) -> Result<(), InstallError> {
    let path = run_dir.join(SOCKET);
    let failed = |error: io::Error| InstallError::io("listen on", &path, &error);
    let listener = if is_served(&path) {
        log::warn!(socket = path_shown(&path); "another process listens: log lines of the plugin go there");
        None
    } else {
        Some(bind(&path).map_err(failed)?)
    };
    let awaited = path.clone();
    let metrics = Arc::clone(metrics);
    let receive = move || {
        let listener = listener.unwrap_or_else(|| take_over(&awaited));
        // What is no request is complete, too: nothing more is read of it.
        let is_complete = |bytes: &[u8], _| !matches!(body(bytes), Ok(None));
        let print = |stream: UnixStream, bytes: Vec<u8>| match lines(&bytes) {
            Ok(lines) => {
                print(&lines, &metrics);
                respond(&stream);
            }
            Err(error) => log::debug!("log lines of the plugin were not received: {error}"),
        };
        if let Err(error) = requests::receive(&listener, is_complete, print) {
            log::error!("log lines of the plugin are not received any more: {error}");
        }
    };
    thread::Builder::new().name("log".to_owned()).spawn(receive).map_err(failed)?;
    Ok(())
}

/// Waits until no other process listens any more.
fn take_over(path: &Path) -> UnixListener {
    loop {
        thread::sleep(TAKE_OVER);
        if is_served(path) {
            continue;
        }
        match bind(path) {
            Ok(listener) => {
                log::info!(socket = path_shown(path); "the other process has ended: log lines of the plugin come here");
                return listener;
            }
            Err(error) => log::debug!(socket = path_shown(path); "cannot listen: {error}"),
        }
    }
}

/// Whether a process listens on a socket.
fn is_served(path: &Path) -> bool {
    matches!(connect_nonblocking(path), Ok(_) | Err(Errno::EAGAIN))
}

/// Removes a socket that no process listens on, if it is there.
///
/// # Errors
/// It cannot be removed.
pub fn remove_abandoned(path: &Path) -> Result<(), InstallError> {
    if is_served(path) {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(InstallError::io("remove", path, &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The lines of a whole request.
fn lines(request: &[u8]) -> io::Result<Vec<String>> {
    let body = body(request)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(serde_json::from_slice(&body)?)
}

/// The body, once it is complete.
fn body(bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(at) = bytes.windows(END.len()).position(|window| window == END) else { return Ok(None) };
    let head = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default()).to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let length = length.ok_or_else(|| io::Error::other("no Content-Length"))?;
    let begin = at + END.len();
    Ok(begin.checked_add(length).and_then(|end| bytes.get(begin..end)).map(<[u8]>::to_vec))
}

fn respond(mut stream: &UnixStream) {
    // Our plugin does not wait for it.
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
}

/// Each line is an object already, and is counted; it gets the source, so that it is not taken for one of the agent.
fn print(lines: &[String], metrics: &Metrics) {
    let mut text = String::new();
    for line in lines {
        let mut object: Map<String, Value> = serde_json::from_str(line).unwrap_or_else(|_| {
            Map::from_iter([("level".to_owned(), "info".into()), ("msg".to_owned(), line.as_str().into())])
        });
        metrics.plugin_line(&object);
        object.insert("source".to_owned(), "plugin".into());
        text.push_str(&format!("{}\n", Value::Object(object)));
    }
    // There is nothing left to report it to.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_as_long_as_the_head_says() {
        let request = b"POST /log HTTP/1.1\r\ncontent-LENGTH: 4\r\n\r\n[\"\"]rest";
        for end in 0..request.len() - 4 {
            assert_eq!(body(&request[..end]).unwrap(), None, "{end}");
        }
        assert_eq!(body(request).unwrap().as_deref(), Some(&b"[\"\"]"[..]));
        for bad in ["\r\n\r\n", "Content-Length: -1\r\n\r\n", "Content-Length: x\r\n\r\n"] {
            body(bad.as_bytes()).unwrap_err();
        }
        let huge = format!("Content-Length: {}\r\n\r\n", usize::MAX);
        assert_eq!(body(huge.as_bytes()).unwrap(), None);
    }
}
