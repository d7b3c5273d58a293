//! All connections: how many there are, and which one goes when there are too many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

use super::pulse::Pulse;

/// How long it takes at most until a full house is looked at again.
const AGAIN: Duration = Duration::from_millis(100);

/// All connections.
#[derive(Debug)]
pub(in crate::webhook) struct Crowd {
    most: usize,
    state: Mutex<State>,
    left: Notify,
    present: Gauge,
    evicted: Counter,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    members: HashMap<u64, Arc<Pulse>>,
}

impl Crowd {
    /// So many at most; those who are there, and those who were sent away, are counted.
    pub(in crate::webhook) fn new(most: usize, present: Gauge, evicted: Counter) -> Self {
        Self { most, state: Mutex::default(), left: Notify::new(), present, evicted }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more. In a full house the one that has been idle longest is asked to leave; those who work
    /// leave by themselves in bounded time.
    pub(in crate::webhook) async fn room(self: &Arc<Self>) -> Place {
        loop {
            let left = self.left.notified();
            if self.state().members.len() < self.most {
                return self.squeeze();
            }
            self.evict();
            let _ = tokio::time::timeout(AGAIN, left).await;
        }
    }

    /// A place for one more, however many there are.
    pub(super) fn squeeze(self: &Arc<Self>) -> Place {
        let pulse = Arc::new(Pulse::default());
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.members.insert(id, Arc::clone(&pulse));
        self.present.inc();
        drop(state);
        Place { id, pulse, crowd: Arc::clone(self) }
    }

    /// Asks the one that has been idle longest to leave.
    pub(in crate::webhook) fn evict(&self) {
        let state = self.state();
        let idle = state.members.values().filter_map(|pulse| Some((pulse.idle()?, pulse)));
        if let Some((_, pulse)) = idle.max_by_key(|(idle, _)| *idle) {
            pulse.dismiss();
            self.evicted.inc();
        }
    }

    /// Waits until the last one has gone.
    pub(super) async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.state().members.is_empty() {
                return;
            }
            let _ = tokio::time::timeout(AGAIN, left).await;
        }
    }
}

/// The place of one connection, free again when it is dropped.
#[derive(Debug)]
pub(in crate::webhook) struct Place {
    id: u64,
    pub(in crate::webhook) pulse: Arc<Pulse>,
    crowd: Arc<Crowd>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.state().members.remove(&self.id);
        self.crowd.present.dec();
        self.crowd.left.notify_waiters();
    }
}
