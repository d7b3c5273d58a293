//! Reading what a request carries: not too much, not too slowly, not too much of all of them together.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::webhook::LARGEST_BODY;

/// All bodies that are held at a time.
const ALL: usize = 32 << 20;
/// What is read of a body that is too large, so that a client which sends first and reads then sees the answer.
const DISCARDED: usize = 16 << 20;
/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of a body that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// More than `LARGEST_BODY`.
    TooLarge,
    /// Slower than `PATIENCE`, or not there before the deadline.
    Late,
    /// All bodies together are too large.
    NoMemory,
    /// The client broke off.
    Gone,
}

/// A body, and the memory that it takes.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    _memory: Option<OwnedSemaphorePermit>,
}

/// Memory for bodies.
#[derive(Clone, Debug)]
pub(super) struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL)))
    }
}

impl Memory {
    /// Reads a body whole.
    pub(super) async fn read(
        &self,
        mut body: Incoming,
        expects: bool,
        deadline: Instant,
    ) -> Result<Held, Unread> {
        let until = deadline.min(Instant::now() + PATIENCE);
        let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        if announced.is_some_and(|size| size > LARGEST_BODY) {
            // Who waits for permission to send is refused it.
            if !expects && announced.is_some_and(|size| size <= DISCARDED) {
                discard(&mut body, DISCARDED, until).await;
            }
            return Err(Unread::TooLarge);
        }
        let mut bytes = Vec::with_capacity(announced.unwrap_or(0).min(1 << 20));
        let mut memory: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = timeout_at(until, body.frame()).await.map_err(|_| Unread::Late)? {
            let Ok(data) = frame.map_err(|_| Unread::Gone)?.into_data() else { continue };
            if bytes.len() + data.len() > LARGEST_BODY {
                drop((bytes, memory));
                discard(&mut body, DISCARDED - LARGEST_BODY, until).await;
                return Err(Unread::TooLarge);
            }
            let size = u32::try_from(data.len()).map_err(|_| Unread::TooLarge)?;
            let more = Arc::clone(&self.0).try_acquire_many_owned(size).map_err(|_| Unread::NoMemory)?;
            match &mut memory {
                Some(memory) => memory.merge(more),
                None => memory = Some(more),
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Held { bytes, _memory: memory })
    }
}

async fn discard(body: &mut Incoming, most: usize, until: Instant) {
    let mut seen = 0;
    while seen < most {
        match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => seen += frame.data_ref().map_or(0, bytes::Bytes::len),
            Ok(Some(Err(_)) | None) | Err(_) => return,
        }
    }
}
