//! `log.sock`: log lines of the plugin become lines of the agent's log. Runtimes discard the plugin's standard error.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use istio_iptables::text::path_shown;
use nix::errno::Errno;
use serde_json::{Map, Value};

use super::error::InstallError;
use super::metrics::Metrics;
use super::pods::{accepted, bind};
use crate::log_sink::SOCKET;
use crate::lookup::LARGEST;
use crate::unix_socket::connect_nonblocking;

/// How long to wait after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Copies log lines to standard error until the process ends. A socket on which another agent listens is left to it.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(run_dir: &Path, metrics: &Arc<Metrics>) -> Result<(), InstallError> {
    let path = run_dir.join(SOCKET);
    let shown = path_shown(&path);
    if is_served(&path) {
        log::warn!(socket = shown; "another process listens: log lines of the plugin go there");
        return Ok(());
    }
    let failed = |error: io::Error| InstallError::io("listen on", &path, &error);
    let listener = bind(&path).map_err(failed)?;
    let metrics = Arc::clone(metrics);
    let receive = move || {
        for stream in listener.incoming() {
            let lines = stream.and_then(|stream| {
                let body = receive(&stream)?;
                respond(&stream);
                Ok(serde_json::from_slice::<Vec<String>>(&body)?)
            });
            match lines {
                Ok(lines) => print(&lines, &metrics),
                Err(error) => {
                    log::debug!("log lines of the plugin were not received: {error}");
                    thread::sleep(PAUSE);
                }
            }
        }
    };
    thread::Builder::new().name("log".to_owned()).spawn(receive).map_err(failed)?;
    Ok(())
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

/// The body of an HTTP request.
fn receive(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut stream = accepted(stream)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(body) = body(&bytes)? {
            return Ok(body);
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => bytes.extend(buffer.get(..length).unwrap_or_default()),
        }
        if bytes.len() > LARGEST {
            return Err(io::Error::other("too large"));
        }
    }
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
