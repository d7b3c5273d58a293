//! Backoff: the delay before repairs of a field that another writer keeps changing.

use std::time::{Duration, Instant};

/// Repairs without delay: a deployment that applies several objects one after another is not a conflict.
const IMMEDIATE: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_secs(30);
const MAX_DELAY: Duration = Duration::from_secs(10 * 60);
/// Reset after this long without a conflict.
const RESET_AFTER: Duration = Duration::from_secs(30 * 60);

/// The recent repairs.
#[derive(Debug, Default)]
pub(super) struct ConflictBackoff {
    repairs: u32,
    last: Option<Instant>,
}

impl ConflictBackoff {
    /// The delay before the next repair, which is counted.
    pub(super) fn next_delay(&mut self, now: Instant) -> Duration {
        if self.last.is_none_or(|last| now.duration_since(last) > RESET_AFTER) {
            self.repairs = 0;
        }
        let delay = match self.repairs.checked_sub(IMMEDIATE) {
            None => Duration::ZERO,
            Some(over) => FIRST_DELAY.saturating_mul(1 << over.min(10)).min(MAX_DELAY),
        };
        self.repairs = self.repairs.saturating_add(1);
        self.last = Some(now + delay);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_until_there_is_no_conflict_for_a_while() {
        let mut backoff = ConflictBackoff::default();
        let mut now = Instant::now();
        let mut delays = Vec::new();
        for _ in 0..10 {
            let delay = backoff.next_delay(now);
            delays.push(delay.as_secs());
            now += delay + Duration::from_secs(1);
        }
        assert_eq!(delays, [0, 0, 0, 30, 60, 120, 240, 480, 600, 600]);
        assert_eq!(backoff.next_delay(now + RESET_AFTER + FIRST_DELAY), Duration::ZERO);
    }
}
