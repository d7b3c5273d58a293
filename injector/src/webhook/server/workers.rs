//! The threads that serve connections.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A node may have many cores, and the injector's memory limit does not grow with them.
const MAX_WORKERS: usize = 4;
/// Large reviews, of which there are few at a time.
const MAX_BLOCKING_THREADS: usize = 4;

/// Threads with a runtime each: a connection stays on its thread. A runtime with several threads wakes a
/// second one for each request with a body, which costs the first one's time and the caches of both
/// processors.
#[derive(Debug)]
pub(in crate::webhook) struct Workers {
    first: Worker,
    others: Vec<Worker>,
    _running: DropGuard,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Has one more reference for each connection.
    connections: Arc<()>,
}

impl Workers {
    /// Starts a thread for each processor; they end when this is dropped.
    pub(in crate::webhook) fn start() -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let running = CancellationToken::new();
        let others = (1..processors.min(MAX_WORKERS)).map(|_| Worker::start(running.clone()));
        Ok(Self {
            first: Worker::start(running.clone())?,
            others: others.collect::<io::Result<_>>()?,
            _running: running.drop_guard(),
        })
    }

    /// The runtime of the worker with the fewest connections, and what counts one more until it is dropped.
    pub(super) fn least_busy(&self) -> (&Handle, Arc<()>) {
        let connections = |worker: &Worker| Arc::strong_count(&worker.connections);
        let least = self.others.iter().min_by_key(|worker| connections(worker));
        let least = least.filter(|worker| connections(worker) < connections(&self.first));
        let Worker { runtime, connections } = least.unwrap_or(&self.first);
        (runtime, Arc::clone(connections))
    }
}

impl Worker {
    fn start(running: CancellationToken) -> io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(MAX_BLOCKING_THREADS).build()?;
        let worker = Self { runtime: runtime.handle().clone(), connections: Arc::default() };
        std::thread::Builder::new().name("worker".to_owned()).spawn(move || {
            runtime.block_on(running.cancelled());
            // What still runs had its time.
            runtime.shutdown_background();
        })?;
        Ok(worker)
    }
}
