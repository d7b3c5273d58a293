//! The state of a connection, for its timeouts: client timeout, idle timeout.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// For the TLS handshake, for the first request after it, and for the client to read a response.
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two requests. Longer than the 90 s after which API servers close idle connections, so that none is
/// closed just when it is used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(100);
/// From the head of a request to its response: the longest deadline (30 s), and a review that began just
/// before it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The requests of one connection, from the head to the last byte of the response.
#[derive(Debug)]
pub(super) struct ConnectionState {
    requests: Mutex<Requests>,
    first_request: CancellationToken,
}

#[derive(Debug)]
struct Requests {
    next_id: u64,
    /// Until when each has to be finished, and whether its response is being sent.
    deadlines: BTreeMap<u64, (Instant, bool)>,
    /// When there is none: until when the next one has to begin.
    idle_deadline: Instant,
}

impl ConnectionState {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        let requests =
            Requests { next_id: 0, deadlines: BTreeMap::new(), idle_deadline: now + CLIENT_TIMEOUT };
        Arc::new(Self { requests: Mutex::new(requests), first_request: CancellationToken::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request whose head has arrived.
    pub(super) fn begin_request(self: &Arc<Self>) -> InFlightRequest {
        let mut requests = self.lock();
        let id = requests.next_id;
        requests.next_id += 1;
        requests.deadlines.insert(id, (Instant::now() + REQUEST_TIMEOUT, false));
        drop(requests);
        self.first_request.cancel();
        InFlightRequest { id, connection: Arc::clone(self) }
    }

    /// Waits until the head of the first request has arrived.
    pub(super) async fn first_request(&self) {
        self.first_request.cancelled().await;
    }

    /// When the connection is closed unless something happens before.
    pub(super) fn deadline(&self) -> Instant {
        let requests = self.lock();
        requests.deadlines.values().map(|(deadline, _)| *deadline).min().unwrap_or(requests.idle_deadline)
    }

    /// Whether a response was not read in time.
    pub(super) fn has_unread_response(&self, now: Instant) -> bool {
        self.lock().deadlines.values().any(|(deadline, responding)| *responding && *deadline <= now)
    }
}

/// A request, until its response is sent.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    id: u64,
    connection: Arc<ConnectionState>,
}

impl InFlightRequest {
    /// The response is there: from now on the client's time to read it counts.
    pub(super) fn responding(&self) {
        self.connection.lock().deadlines.insert(self.id, (Instant::now() + CLIENT_TIMEOUT, true));
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut requests = self.connection.lock();
        requests.deadlines.remove(&self.id);
        requests.idle_deadline = Instant::now() + IDLE_TIMEOUT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_request_sets_the_deadline() {
        let start = Instant::now();
        let connection = ConnectionState::new(start);
        assert_eq!(connection.deadline(), start + CLIENT_TIMEOUT, "no request yet");
        let (first, second) = (connection.begin_request(), connection.begin_request());
        assert!(connection.deadline() >= start + REQUEST_TIMEOUT);
        second.responding();
        assert!(connection.deadline() < start + REQUEST_TIMEOUT, "a response that is not read");
        let late = start + REQUEST_TIMEOUT;
        assert!(connection.has_unread_response(late) && !connection.has_unread_response(start));
        drop(second);
        assert!(!connection.has_unread_response(late) && connection.deadline() >= late);
        drop(first);
        assert!(connection.deadline() >= start + IDLE_TIMEOUT);
    }
}
