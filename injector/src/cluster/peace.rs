//! How patiently something is repaired that somebody else keeps breaking.

use std::time::{Duration, Instant};

/// So many repairs are made at once: a deployment that applies several things in turn is no quarrel.
const AT_ONCE: u32 = 3;
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// After so long a peace everything is forgotten.
const QUIET: Duration = Duration::from_secs(30 * 60);

/// The repairs of late.
#[derive(Debug, Default)]
pub(super) struct Peace {
    repairs: u32,
    last: Option<Instant>,
}

impl Peace {
    /// Something has to be repaired again: how long to wait first.
    pub(super) fn disturbed(&mut self, now: Instant) -> Duration {
        if self.last.is_none_or(|last| now.duration_since(last) > QUIET) {
            self.repairs = 0;
        }
        let wait = match self.repairs.checked_sub(AT_ONCE) {
            None => Duration::ZERO,
            Some(over) => FIRST.saturating_mul(1 << over.min(10)).min(LONGEST),
        };
        self.repairs = self.repairs.saturating_add(1);
        self.last = Some(now + wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_often_the_slower_until_it_is_quiet() {
        let mut peace = Peace::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..10 {
            let wait = peace.disturbed(now);
            waits.push(wait.as_secs());
            now += wait + Duration::from_secs(1);
        }
        assert_eq!(waits, [0, 0, 0, 30, 60, 120, 240, 480, 600, 600]);
        assert_eq!(peace.disturbed(now + QUIET + FIRST), Duration::ZERO);
    }
}
