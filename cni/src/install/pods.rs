//! The agent's side of its socket: a thread for each question, which the API server may be asked for.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use istio_iptables::text::path_shown;

use super::error::InstallError;
use super::metrics::Metrics;
use super::socket::{self, Unlocked};
use crate::environment::PodName;
use crate::lookup::{self, Query, Response, VERSION};

/// Lookups at a time: more than pods that start at once. Further ones wait in the socket's queue.
const LIMIT: usize = 256;
/// The taint of nodes on which no plugin captures pods yet. Istio's control plane removes it as well.
pub const TAINT: &str = "cni.istio.io/not-ready";
/// The time to wait while there are as many.
const PAUSE: Duration = Duration::from_millis(5);

/// What has happened to the rules of a captured pod, for its events and its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNotice {
    /// The pod's namespace and name.
    pub pod: String,
    /// The pod's uid; may be empty.
    pub uid: String,
    /// Whether its traffic is captured as it should be.
    pub is_captured: bool,
    /// The reason, as events have it.
    pub reason: &'static str,
    /// What has happened, in words.
    pub message: String,
    /// Since when this is so.
    pub at: SystemTime,
}

/// What the API server knows of this node: its pods, and its Node object.
pub trait Pods: Send + Sync {
    /// Looks a pod up.
    fn find(&self, query: &Query) -> Response;

    /// Why lookups fail for now.
    fn problem(&self) -> Option<String>;

    /// The injected pods of the node whose `istio-validation` has found no capture the last time; without
    /// those that are being deleted or have ended.
    fn uncaptured(&self) -> Vec<PodName>;

    /// Whether a pod of the node exists, and is neither being deleted nor has ended; `None`: not known.
    fn is_live(&self, pod: &PodName) -> Option<bool>;

    /// Labels a pod, if it is still this one.
    ///
    /// # Errors
    /// Why it could not be labelled.
    fn label(&self, pod: &PodName, label: (&str, &str)) -> Result<(), String>;

    /// Deletes a pod, if it is still this one.
    ///
    /// # Errors
    /// Why it could not be deleted.
    fn delete(&self, pod: &PodName) -> Result<(), String>;

    /// The container runtime of the node and its version, as `containerd://2.1.4`.
    ///
    /// # Errors
    /// Why it is not known.
    fn container_runtime(&self) -> Result<String, String>;

    /// Removes the taint [`TAINT`] of the node. Returns whether it was there.
    ///
    /// # Errors
    /// Why it could not be removed, if it is there.
    fn remove_taint(&self) -> Result<bool, String>;

    /// Writes an event and a condition of a pod, as soon as that is possible. Does not wait.
    fn report(&self, notice: PodNotice);
}

/// Serves lookups until the process ends, as soon as no other agent does.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(run_dir: &Path, pods: Arc<dyn Pods>, metrics: &Arc<Metrics>) -> Result<(), InstallError> {
    let open = Arc::new(AtomicUsize::new(0));
    let metrics = Arc::clone(metrics);
    let respond = move |stream: UnixStream, question: Vec<u8>| {
        while open.load(Ordering::SeqCst) >= LIMIT {
            thread::sleep(PAUSE);
        }
        open.fetch_add(1, Ordering::SeqCst);
        let (pods, metrics, counter) = (Arc::clone(&pods), Arc::clone(&metrics), Arc::clone(&open));
        let started = thread::Builder::new().name("pod".to_owned()).spawn(move || {
            let _open = Open(counter);
            if let Err(error) = respond(stream, &question, pods.as_ref(), &metrics) {
                log::debug!("a lookup of a pod got no response: {error}");
            }
        });
        if started.is_err() {
            open.fetch_sub(1, Ordering::SeqCst);
        }
    };
    socket::serve(&lookup::socket(run_dir), "pods", Unlocked::Replace, |_, has_ended| has_ended, respond)
}

/// Why the plugin's lookups fail.
pub fn problem(run_dir: &Path, pods: &dyn Pods) -> Option<String> {
    let socket = lookup::socket(run_dir);
    let removed = || {
        let path = path_shown(&socket);
        format!(
            "{path}: removed by another program; until it is created again, pods that annotations do not decide cannot start"
        )
    };
    pods.problem().or_else(|| (!socket.exists()).then(removed))
}

/// Counts a lookup until it has its response.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn respond(mut stream: UnixStream, question: &[u8], pods: &dyn Pods, metrics: &Metrics) -> io::Result<()> {
    let response = match serde_json::from_slice::<Query>(question) {
        Ok(query) if query.version == VERSION => pods.find(&query),
        Ok(query) => Response::Unknown(format!(
            "version {} of the protocol is not supported, expected {VERSION}: plugin and agent have different versions",
            query.version
        )),
        Err(error) => Response::Unknown(format!("the lookup is invalid: {error}")),
    };
    metrics.lookup(&response);
    stream.write_all(&serde_json::to_vec(&response)?)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;

    struct NoPods;

    impl Pods for NoPods {
        fn find(&self, _: &Query) -> Response {
            Response::NotFound
        }

        fn problem(&self) -> Option<String> {
            None
        }

        fn uncaptured(&self) -> Vec<PodName> {
            Vec::new()
        }

        fn is_live(&self, _: &PodName) -> Option<bool> {
            None
        }

        fn label(&self, _: &PodName, _: (&str, &str)) -> Result<(), String> {
            Err("none".to_owned())
        }

        fn delete(&self, _: &PodName) -> Result<(), String> {
            Err("none".to_owned())
        }

        fn container_runtime(&self) -> Result<String, String> {
            Err("none".to_owned())
        }

        fn remove_taint(&self) -> Result<bool, String> {
            Ok(false)
        }

        fn report(&self, _: PodNotice) {}
    }

    #[test]
    fn agent_without_its_socket_is_not_ready() {
        let run_dir = tempfile::tempdir().unwrap();
        let found = problem(run_dir.path(), &NoPods);
        assert!(found.as_ref().is_some_and(|problem| problem.contains("agent.sock: removed")), "{found:?}");
        serve(run_dir.path(), Arc::new(NoPods), &Arc::new(Metrics::default())).unwrap();
        assert_eq!(problem(run_dir.path(), &NoPods), None);
    }
}
