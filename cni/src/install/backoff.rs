//! How long to wait before the entry is written again, after another program has changed it.

use std::time::{Duration, Instant};

/// The first delay, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// Without a conflict for this long, the next one is the first.
const RESET: Duration = Duration::from_secs(600);

/// Doubles from 1 s to 60 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConflictBackoff {
    last: Option<(Instant, Duration)>,
}

impl ConflictBackoff {
    /// The entry was written. Until when it is not written again.
    pub fn written(&mut self, now: Instant) {
        let gap = match self.last {
            Some((last, gap)) if now.duration_since(last) < RESET => (gap * 2).min(LONGEST),
            Some(_) | None => FIRST,
        };
        self.last = Some((now, gap));
    }

    /// How long to wait before the next write: nothing after a time without conflict.
    #[must_use]
    pub fn delay(&self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |(last, gap)| (last + gap).saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_minute_and_start_again_after_a_pause() {
        let mut backoff = ConflictBackoff::default();
        let mut now = Instant::now();
        assert_eq!(backoff.delay(now), Duration::ZERO);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            backoff.written(now);
            assert_eq!(backoff.delay(now), Duration::from_secs(seconds));
            now += Duration::from_secs(seconds);
            assert_eq!(backoff.delay(now), Duration::ZERO);
        }
        now += RESET;
        backoff.written(now);
        assert_eq!(backoff.delay(now), FIRST);
    }
}
