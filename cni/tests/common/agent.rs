//! A process that listens on the agent's socket, and responds as a test wants it to.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// What happens to a question.
pub(crate) enum Reply {
    /// A response of these bytes, then the end.
    Bytes(Vec<u8>),
    /// The connection stays open without a response.
    Silence,
    /// A response without end.
    Endless,
}

/// A response.
pub(crate) fn json_reply(reply: &Value) -> Reply {
    Reply::Bytes(reply.to_string().into_bytes())
}

/// A pod as the agent reports it.
pub(crate) fn pod(name: &str, uid: &str, annotations: &Value, proxy: &Value) -> Value {
    let containers = json!({"names": ["app", "istio-proxy", "istio-validation"], "proxy": proxy});
    json!({"pod": {
        "namespace": "default", "name": name, "uid": uid,
        "pod": {"labels": {}, "annotations": annotations, "containers": containers}
    }})
}

/// The facts of a proxy's container that has nothing special.
pub(crate) fn proxy() -> Value {
    json!({"args": ["proxy", "sidecar"], "env": {}, "uid": null, "gid": null})
}

/// Listens until the process of the test ends. Returns the questions so far.
pub(crate) fn serve(
    run_dir: &Path,
    reply: impl Fn(&Value) -> Reply + Send + 'static,
) -> Arc<Mutex<Vec<Value>>> {
    std::fs::create_dir_all(run_dir).unwrap();
    let listener = UnixListener::bind(run_dir.join("agent.sock")).unwrap();
    let questions = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&questions);
    thread::spawn(move || {
        let mut open: Vec<UnixStream> = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            // STATUS only connects.
            let Ok(question) = serde_json::from_str::<Value>(&text) else { continue };
            let reply = reply(&question);
            asked.lock().unwrap().push(question);
            match reply {
                // A plugin that has read enough is gone.
                Reply::Bytes(bytes) => drop(stream.write_all(&bytes)),
                Reply::Silence => open.push(stream),
                Reply::Endless => while stream.write_all(b"[[[[[[[[").is_ok() {},
            }
        }
    });
    questions
}
