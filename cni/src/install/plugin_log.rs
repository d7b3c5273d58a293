//! `log.sock`: log lines of the plugin become lines of the agent's log. Runtimes discard the plugin's
//! standard error.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::InstallError;
use super::metrics::Metrics;
use super::socket::{self, Unlocked};
use crate::log_sink::SOCKET;

/// Copies log lines to standard error until the process ends. A socket on which another agent listens,
/// Istio's too, is left to it until that one ends.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(run_dir: &Path, metrics: &Arc<Metrics>) -> Result<(), InstallError> {
    let metrics = Arc::clone(metrics);
    // What is not a request is complete, too: nothing more is read of it.
    let is_complete = |bytes: &[u8], _| !matches!(body(bytes), Ok(None));
    let print = move |stream: UnixStream, bytes: Vec<u8>| match lines(&bytes) {
        Ok(lines) => {
            print(&lines, &metrics);
            respond(&stream);
        }
        Err(error) => log::debug!("log lines of the plugin were not received: {error}"),
    };
    socket::serve(&run_dir.join(SOCKET), "log", Unlocked::Wait, is_complete, print)
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

/// Each line is an object already, and is counted; it gets the source, so that it is not taken for one of the
/// agent.
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
