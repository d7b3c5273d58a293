//! What happens many times a second, and is told of every few seconds.

use std::time::Duration;

use tokio::time::Instant;

/// Between two times of telling.
const PAUSE: Duration = Duration::from_secs(5);

/// Counts what is not told.
#[derive(Debug, Default)]
pub(in crate::webhook) struct Seldom {
    told: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Notes that it happened; how often since the last time it was told, if it is to be told now.
    pub(in crate::webhook) fn happened(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < PAUSE) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_and_then_after_each_pause() {
        let (begin, mut seldom) = (Instant::now(), Seldom::default());
        let told = [0, 50, 100, 4999, 5000, 5001, 9999, 60_000, 60_050]
            .map(|ms| seldom.happened(begin + Duration::from_millis(ms)));
        assert_eq!(told, [Some(1), None, None, None, Some(4), None, None, Some(3), None]);
    }
}
