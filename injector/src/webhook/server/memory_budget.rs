//! The memory limit for the bodies of requests and responses.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// The largest body that counts as small; pods have a tenth of it.
const SMALL: usize = 256 << 10;
/// For all small bodies.
const ALL_SMALL: usize = 8 << 20;
/// For all others.
const ALL_LARGE: usize = 24 << 20;

/// Memory for all bodies. Small ones have memory of their own, which large ones cannot take.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// No memory was free before the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfBudget;

impl Default for MemoryBudget {
    fn default() -> Self {
        Self { small: Arc::new(Semaphore::new(ALL_SMALL)), large: Arc::new(Semaphore::new(ALL_LARGE)) }
    }
}

impl MemoryBudget {
    /// Waits for memory, all of it at once: bodies that hold a part of theirs cannot block each other.
    pub(super) async fn reserve(
        &self,
        bytes: usize,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, OutOfBudget> {
        let (pool, most) = if bytes > SMALL { (&self.large, ALL_LARGE) } else { (&self.small, ALL_SMALL) };
        let size = u32::try_from(bytes.min(most)).map_err(|_| OutOfBudget)?;
        let permit = timeout_at(deadline, Arc::clone(pool).acquire_many_owned(size)).await;
        permit.map_err(|_| OutOfBudget)?.map_err(|_| OutOfBudget)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn large_bodies_leave_memory_for_small_ones() {
        let (budget, soon) = (MemoryBudget::default(), Instant::now() + Duration::from_millis(10));
        let mut large = Vec::new();
        for _ in 0..4 {
            large.push(budget.reserve(ALL_LARGE / 4, soon).await.unwrap());
        }
        assert_eq!(budget.reserve(SMALL + 1, soon).await.unwrap_err(), OutOfBudget);
        assert!(budget.reserve(SMALL, soon).await.is_ok());
        large.pop();
        let later = Instant::now() + Duration::from_secs(60);
        assert!(budget.reserve(SMALL + 1, later).await.is_ok(), "released memory is reused");
    }
}
