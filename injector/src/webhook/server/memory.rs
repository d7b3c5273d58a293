//! Memory for bodies, those of requests and those of answers.
//!
//! Each body takes what has arrived of it, each answer what it has until it is sent. Small ones have memory of their
//! own, which large ones cannot take. Where there is none left, those that have been on their way longest are given up:
//! usual ones take milliseconds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::pulse::Pulse;

/// What a body may have to be a small one; pods have a tenth of it.
const SMALL: usize = 256 << 10;
/// For all small bodies.
const ALL_SMALL: usize = 8 << 20;
/// For all others.
const ALL_LARGE: usize = 24 << 20;

/// So long an answer may take to be sent, whoever needs its memory: its whole connection goes with it. Where the client
/// reads it takes microseconds.
const SENDING: Duration = Duration::from_millis(200);

/// Memory for bodies.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    small: Arc<Pool>,
    large: Arc<Pool>,
    next: Arc<AtomicU64>,
}

/// There is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short;

impl Default for Memory {
    fn default() -> Self {
        let next = Arc::default();
        Self { small: Pool::of(ALL_SMALL), large: Pool::of(ALL_LARGE), next }
    }
}

impl Memory {
    fn id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// For a body of which nothing has arrived yet.
    pub(super) fn begin(&self) -> Growing {
        let id = self.id();
        let share = Share::of(&self.small, id, Moving::default());
        Growing { share, large: Some(Arc::clone(&self.large)), id }
    }

    /// For an answer, until it is sent. A connection on which that takes too long is cut when others need the memory.
    pub(super) async fn answer(&self, bytes: usize, connection: &Arc<Pulse>) -> Result<Share, Short> {
        let pool = if bytes > SMALL { &self.large } else { &self.small };
        let since = Arc::<OnceLock<Instant>>::default();
        let answer = Some((Arc::clone(connection), Arc::clone(&since)));
        let mut share = Share::of(pool, self.id(), Moving { answer, ..Moving::default() });
        share.take(bytes).await?;
        since.get_or_init(Instant::now);
        Ok(share)
    }
}

/// Memory for one sort of bodies, and those that are on their way, the oldest first.
#[derive(Debug)]
struct Pool {
    free: Arc<Semaphore>,
    moving: Mutex<BTreeMap<u64, Arc<Moving>>>,
}

/// A body on its way.
#[derive(Debug, Default)]
struct Moving {
    held: AtomicUsize,
    given_up: Notify,
    /// For an answer: its connection, and since when it has its memory.
    answer: Option<(Arc<Pulse>, Arc<OnceLock<Instant>>)>,
}

impl Moving {
    /// What others get when it is given up.
    fn spare(&self) -> usize {
        match &self.answer {
            Some((_, since)) if since.get().is_none_or(|since| since.elapsed() < SENDING) => 0,
            _ => self.held.load(Ordering::Relaxed),
        }
    }

    fn give_up(&self) {
        self.given_up.notify_one();
        if let Some((connection, _)) = &self.answer {
            connection.cut();
        }
    }
}

impl Pool {
    fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(bytes)), moving: Mutex::default() })
    }

    fn moving(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Moving>>> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up the oldest bodies, as many as it takes, but none that is younger than this one; and none if all of
    /// them are not enough.
    fn make_room(&self, bytes: usize, id: u64) -> Result<(), Short> {
        let mut moving = self.moving();
        // What is free already is somebody else's by the time that it is taken.
        let (mut freed, mut chosen) = (0, Vec::new());
        for (older, body) in moving.range(..id) {
            if freed >= bytes {
                break;
            }
            let spare = body.spare();
            if spare > 0 {
                freed += spare;
                chosen.push(*older);
            }
        }
        if freed < bytes {
            return Err(Short);
        }
        for body in chosen.iter().filter_map(|older| moving.remove(older)) {
            body.give_up();
        }
        Ok(())
    }
}

/// What one body has of a pool.
#[derive(Debug)]
pub(super) struct Share {
    pool: Arc<Pool>,
    id: u64,
    body: Arc<Moving>,
    memory: Option<OwnedSemaphorePermit>,
}

impl Share {
    fn of(pool: &Arc<Pool>, id: u64, body: Moving) -> Self {
        let body = Arc::new(body);
        pool.moving().insert(id, Arc::clone(&body));
        Self { pool: Arc::clone(pool), id, body, memory: None }
    }

    async fn take(&mut self, bytes: usize) -> Result<(), Short> {
        let size = u32::try_from(bytes).map_err(|_| Short)?;
        let at_once = || Arc::clone(&self.pool.free).try_acquire_many_owned(size);
        let more = if let Ok(more) = at_once() {
            more
        } else if self.pool.make_room(bytes, self.id).is_ok() {
            // The semaphore is never closed.
            tokio::select! {
                biased;
                () = self.body.given_up.notified() => return Err(Short),
                more = Arc::clone(&self.pool.free).acquire_many_owned(size) => more.map_err(|_| Short)?,
            }
        } else {
            // Who was not found among those on their way may have gone meanwhile.
            at_once().map_err(|_| Short)?
        };
        match &mut self.memory {
            Some(memory) => memory.merge(more),
            None => self.memory = Some(more),
        }
        self.body.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn held(&self) -> usize {
        self.body.held.load(Ordering::Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.moving().remove(&self.id);
    }
}

/// The memory of a body that is arriving.
#[derive(Debug)]
pub(super) struct Growing {
    share: Share,
    /// Where the body goes when it is no small one any more.
    large: Option<Arc<Pool>>,
    id: u64,
}

impl Growing {
    /// Takes more.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), Short> {
        let whole = self.share.held() + bytes;
        let Some(large) = self.large.take_if(|_| whole > SMALL) else { return self.share.take(bytes).await };
        let mut share = Share::of(&large, self.id, Moving::default());
        tokio::select! {
            biased;
            () = self.given_up() => return Err(Short),
            taken = share.take(whole) => taken?,
        }
        self.share = share;
        Ok(())
    }

    /// Waits until others need the memory more.
    pub(super) async fn given_up(&self) {
        self.share.body.given_up.notified().await;
    }

    /// The memory of a body that is complete.
    pub(super) fn keep(mut self) -> Option<OwnedSemaphorePermit> {
        self.share.memory.take()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn large_bodies_leave_memory_for_small_ones() {
        let memory = Memory::default();
        let mut kept = Vec::new();
        for _ in 0..4 {
            let mut body = memory.begin();
            body.grow(ALL_LARGE / 4).await.unwrap();
            kept.push(body.keep());
        }
        assert_eq!(memory.begin().grow(SMALL + 1).await, Err(Short), "nothing that could be given up");
        let mut small = memory.begin();
        assert_eq!(small.grow(SMALL).await, Ok(()));
        assert_eq!(small.grow(1).await, Err(Short), "not small any more");
        kept.pop();
        assert_eq!(memory.begin().grow(SMALL + 1).await, Ok(()));
    }

    #[tokio::test]
    async fn the_oldest_is_given_up() {
        let memory = Memory::default();
        let mut all = Vec::new();
        for _ in 0..ALL_SMALL / SMALL {
            let mut body = memory.begin();
            body.grow(SMALL).await.unwrap();
            all.push(body);
        }
        let oldest = all.remove(0);
        let mut new = memory.begin();
        let makes_room = async {
            oldest.given_up().await;
            drop(oldest);
        };
        assert_eq!(tokio::join!(new.grow(1), makes_room).0, Ok(()));
        assert_eq!(new.grow(SMALL - 1).await, Ok(()), "what was given up is there for whoever needed it");
    }

    /// What is there without waiting.
    fn now<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    fn is_given_up(body: &Growing) -> bool {
        now(pin!(body.given_up())).is_some()
    }

    /// A part of all memory for small bodies, and a body that is arriving and has as much.
    const PART: usize = SMALL / 2;

    async fn arriving(memory: &Memory) -> Growing {
        let mut body = memory.begin();
        body.grow(PART).await.unwrap();
        body
    }

    /// Takes the rest, for bodies that are complete.
    async fn fill(memory: &Memory) -> Vec<Option<OwnedSemaphorePermit>> {
        let mut kept = Vec::new();
        while memory.small.free.available_permits() > 0 {
            kept.push(arriving(memory).await.keep());
        }
        kept
    }

    #[tokio::test]
    async fn nobody_is_given_up_in_vain() {
        let memory = Memory::default();
        let (empty, older, mut new) = (memory.begin(), arriving(&memory).await, memory.begin());
        let _kept = fill(&memory).await;
        assert_eq!(new.grow(PART + 1).await, Err(Short));
        assert!(!is_given_up(&older), "it would not have been enough");
        assert_eq!(now(pin!(new.grow(1))), None, "the older one has not gone yet");
        assert!(is_given_up(&older) && !is_given_up(&empty), "one has nothing to give");
    }

    #[tokio::test]
    async fn an_answer_has_its_time_to_be_sent() {
        let (memory, connection) = (Memory::default(), Arc::<Pulse>::default());
        let answer = memory.answer(PART, &connection).await.unwrap();
        let _kept = fill(&memory).await;
        let mut new = memory.begin();
        assert_eq!(new.grow(1).await, Err(Short), "the answer is on its way");
        tokio::time::sleep(SENDING).await;
        assert_eq!(now(pin!(new.grow(1))), None, "the answer is there until its connection is gone");
        assert_eq!(now(pin!(connection.is_cut())), Some(()));
        drop(answer);
        assert_eq!(new.grow(PART).await, Ok(()));
    }

    #[tokio::test]
    async fn who_is_given_up_does_not_wait_for_others() {
        let memory = Memory::default();
        let (mut oldest, mut older) = (arriving(&memory).await, arriving(&memory).await);
        let (mut new, _kept) = (memory.begin(), fill(&memory).await);
        let mut waits = pin!(older.grow(1));
        assert_eq!(now(waits.as_mut()), None, "the oldest has not gone yet");
        assert_eq!(oldest.grow(1).await, Err(Short), "nobody is older");
        assert_eq!(now(waits.as_mut()), None, "not given up for the oldest");
        assert_eq!(now(pin!(new.grow(1))), None, "gives up who waits");
        assert_eq!(now(waits.as_mut()), Some(Err(Short)));
    }
}
