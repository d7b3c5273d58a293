//! Reading what a request carries: not too much, not too slowly, not too much of all of them together.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::memory::{Memory, Short};
use super::pulse::Pulse;
use crate::webhook::LARGEST_BODY;

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
    /// All bodies and answers together are too large, or others needed its memory more.
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

impl From<Short> for Unread {
    fn from(_: Short) -> Self {
        Self::NoMemory
    }
}

/// Reads a body whole, and waits for its turn on its connection. Until then it can be given up for others.
pub(super) async fn read(
    memory: &Memory,
    mut body: Incoming,
    expects: bool,
    deadline: Instant,
    connection: &Pulse,
) -> Result<(Held, OwnedSemaphorePermit), Unread> {
    let until = deadline.min(Instant::now() + PATIENCE);
    let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    if announced.is_some_and(|size| size > LARGEST_BODY) {
        // Who waits for permission to send is refused it.
        if !expects && announced.is_some_and(|size| size <= DISCARDED) {
            discard(&mut body, DISCARDED, until).await;
        }
        return Err(Unread::TooLarge);
    }
    let mut memory = memory.begin();
    let mut bytes = Vec::with_capacity(announced.unwrap_or(0).min(1 << 20));
    loop {
        let frame = tokio::select! {
            biased;
            () = memory.given_up() => return Err(Unread::NoMemory),
            frame = timeout_at(until, body.frame()) => frame.map_err(|_| Unread::Late)?,
        };
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|_| Unread::Gone)?.into_data() else { continue };
        if bytes.len() + data.len() > LARGEST_BODY {
            drop((bytes, memory));
            discard(&mut body, DISCARDED - LARGEST_BODY, until).await;
            return Err(Unread::TooLarge);
        }
        // Who waits for memory is not late by its own fault.
        timeout_at(until, memory.grow(data.len())).await.map_err(|_| Unread::NoMemory)??;
        bytes.extend_from_slice(&data);
    }
    let turn = tokio::select! {
        biased;
        () = memory.given_up() => return Err(Unread::NoMemory),
        turn = timeout_at(deadline, connection.turn()) => turn.ok().flatten().ok_or(Unread::Late)?,
    };
    Ok((Held { bytes, _memory: memory.keep() }, turn))
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
