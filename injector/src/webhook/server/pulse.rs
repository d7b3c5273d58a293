//! What is known of a connection's life, for whoever decides when it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// For a handshake; and, after it, for the head of a request from its first byte on, and for the first request.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// For the next request. Longer than the 90 s after which API servers close idle connections themselves, so that
/// none is closed just when it is used.
const IDLE: Duration = Duration::from_secs(120);
/// Requests of one connection that are worked on, or whose answers are not sent yet; others wait. Sending an answer takes
/// microseconds where the client reads it.
const AT_ONCE: usize = 16;
/// How long a client may read nothing of that many answers; of fewer it is `PATIENCE`.
const CLOGGED: Duration = Duration::from_secs(1);

/// What is known of a connection's life. Times are milliseconds since it began.
#[derive(Debug)]
pub(in crate::webhook) struct Pulse {
    began: Instant,
    working: AtomicU32,
    served: AtomicBool,
    quiet_since: AtomicU64,
    /// When the head of the next request began to arrive; 0 is never.
    head_since: AtomicU64,
    is_dismissed: AtomicBool,
    dismissal: Notify,
    answer: Notify,
    cut: Notify,
    turns: Arc<Semaphore>,
    sending: Mutex<Sending>,
}

/// Answers that are not sent yet, the oldest first, and since when.
#[derive(Debug, Default)]
struct Sending {
    next: u64,
    answers: BTreeMap<u64, Instant>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            working: AtomicU32::new(0),
            served: AtomicBool::new(false),
            quiet_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            is_dismissed: AtomicBool::new(false),
            dismissal: Notify::new(),
            answer: Notify::new(),
            cut: Notify::new(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            sending: Mutex::default(),
        }
    }
}

impl Pulse {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn heard(&self) {
        if self.working.load(Ordering::Relaxed) == 0 && self.head_since.load(Ordering::Relaxed) == 0 {
            self.head_since.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// Notes that the head of a request is here.
    pub(in crate::webhook) fn request_begins(self: &Arc<Self>) -> Working {
        self.working.fetch_add(1, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        Working(Arc::clone(self))
    }

    /// How long nothing has been worked on; nothing if something is, or if it is on its way out.
    pub(super) fn idle(&self) -> Option<Duration> {
        if self.is_dismissed.load(Ordering::Relaxed) { None } else { self.quiet() }
    }

    /// How long nothing has been worked on; nothing if something is.
    pub(super) fn quiet(&self) -> Option<Duration> {
        (self.working.load(Ordering::Relaxed) == 0).then(|| self.since(&self.quiet_since))
    }

    fn since(&self, time: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(time.load(Ordering::Relaxed)))
    }

    /// Asks the connection to close.
    pub(super) fn dismiss(&self) {
        self.is_dismissed.store(true, Ordering::Relaxed);
        self.dismissal.notify_one();
    }

    /// Waits until the connection is asked to close.
    pub(in crate::webhook) async fn dismissed(&self) {
        self.dismissal.notified().await;
    }

    /// Ends the connection at once.
    pub(super) fn cut(&self) {
        self.cut.notify_one();
    }

    /// Waits until the connection is to end at once.
    pub(super) async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// Waits until a request has been answered.
    pub(super) async fn answered(&self) {
        self.answer.notified().await;
    }

    /// Waits until a request may be worked on; the turn lasts until its answer is sent.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an answer is on its way, until it is sent.
    pub(super) fn sends(self: &Arc<Self>) -> Unsent {
        let mut sending = self.sending();
        let id = sending.next;
        sending.next += 1;
        sending.answers.insert(id, Instant::now());
        drop(sending);
        Unsent { id, pulse: Arc::clone(self) }
    }

    /// Whether the client does not read its answers.
    pub(super) fn is_clogged(&self) -> bool {
        let sending = self.sending();
        let patience = if sending.answers.len() < AT_ONCE { PATIENCE } else { CLOGGED };
        sending.answers.values().next().is_some_and(|oldest| oldest.elapsed() > patience)
    }

    pub(super) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// Whether nobody is expected to send anything useful any more.
    pub(super) fn is_over(&self, http2: bool) -> bool {
        let Some(idle) = self.idle() else { return false };
        let head = self.head_since.load(Ordering::Relaxed);
        // HTTP/2 has bytes between requests too.
        let slow_head = !http2 && head > 0 && self.since(&self.head_since) > PATIENCE;
        slow_head || idle > if self.has_served() { IDLE } else { PATIENCE }
    }
}

/// A request on a connection, from head to answer.
pub(in crate::webhook) struct Working(Arc<Pulse>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.quiet_since.store(self.0.now(), Ordering::Relaxed);
        self.0.working.fetch_sub(1, Ordering::Relaxed);
        self.0.answer.notify_one();
    }
}

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Unsent {
    id: u64,
    pulse: Arc<Pulse>,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.pulse.sending().answers.remove(&self.id);
    }
}
