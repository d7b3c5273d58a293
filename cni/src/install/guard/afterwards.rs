//! What follows a repair, on a thread of its own: which connections have begun meanwhile, and the notices. To
//! look takes some milliseconds, for which no repair of another pod waits.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use istio_iptables::config::Resolved;
use istio_iptables::kernel::netns::Namespace;
use istio_iptables::kernel::process::SystemHost;

use super::super::metrics::Metrics;
use super::super::pods::{PodNotice, Pods};
use super::escaped::Escaped;
use super::incident::Incident;
use crate::state::State;

/// The name of the thread: at most 15 bytes.
const THREAD: &str = "istio-cni-after";

/// An incident that is over.
pub(super) struct Ended {
    pub(super) incident: Incident,
    pub(super) state: State,
    /// The namespace of the pod, if it is there.
    pub(super) namespace: Option<Namespace>,
    pub(super) options: Resolved,
    /// What is known of the pod's connections.
    pub(super) escaped: Arc<Mutex<Escaped>>,
}

enum Job {
    Ended(Box<Ended>),
    Notice(PodNotice),
}

/// The thread, which does one job after another, so that notices stay in order.
pub(super) struct Afterwards {
    jobs: Sender<Job>,
}

struct Worker {
    host: SystemHost,
    metrics: Arc<Metrics>,
    reported: Option<Arc<dyn Pods>>,
    resets: bool,
    /// The namespace of this process: to stay in that of a pod would keep it from ending.
    own: Namespace,
}

impl Afterwards {
    /// Starts the thread, in the namespaces of this one.
    pub(super) fn start(
        host: SystemHost,
        metrics: Arc<Metrics>,
        reported: Option<Arc<dyn Pods>>,
        resets: bool,
    ) -> io::Result<Self> {
        let (jobs, received) = channel();
        let own = Namespace::open(Path::new("/proc/thread-self/ns/net")).map_err(io::Error::other)?;
        let worker = Worker { host, metrics, reported, resets, own };
        thread::Builder::new().name(THREAD.to_owned()).spawn(move || worker.work(&received))?;
        Ok(Self { jobs })
    }

    pub(super) fn ended(&self, ended: Ended) {
        self.send(Job::Ended(Box::new(ended)));
    }

    pub(super) fn report(&self, notice: PodNotice) {
        self.send(Job::Notice(notice));
    }

    fn send(&self, job: Job) {
        // It ends with the process.
        let _ = self.jobs.send(job);
    }
}

impl Worker {
    fn work(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            let notice = match job {
                Job::Ended(ended) => self.close(&ended),
                Job::Notice(notice) => Some(notice),
            };
            if let Some((pods, notice)) = self.reported.as_ref().zip(notice) {
                pods.report(notice);
            }
        }
    }

    fn close(&self, ended: &Ended) -> Option<PodNotice> {
        let Ended { incident, state, namespace, options, escaped } = ended;
        let entered = namespace.as_ref().is_some_and(|namespace| namespace.enter().is_ok());
        let mut known = escaped.lock().unwrap_or_else(PoisonError::into_inner);
        let about = (state.pod.as_str(), self.resets);
        let words = entered.then(|| known.look(&self.host, options.clone(), about, &self.metrics)).flatten();
        if let Err(error) = self.own.enter() {
            log::error!("the network namespace of the agent cannot be entered again: {error}");
        }
        incident.ended(state, words.as_deref())
    }
}
