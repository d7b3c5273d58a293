//! How often rules are repaired that another program keeps changing.

use std::time::{Duration, Instant};

/// How many repairs in a row follow at once.
const AT_ONCE: u32 = 3;
/// A program that leaves repaired rules alone for so long is not fighting: to write them again this seldom
/// costs nothing, and a pause would leave the pod without them.
const FIGHT: Duration = Duration::from_secs(5);
/// A program that removed the rules is expected to do so again within this time.
const CALM: Duration = Duration::from_secs(10);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// The pauses between repairs: none at first, then from one second to a minute, each twice as long as the one
/// before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The last repair.
    last: Option<Instant>,
    in_a_row: u32,
}

impl Pace {
    /// The pause that follows the last repair.
    fn pause(self) -> Duration {
        match self.in_a_row.checked_sub(AT_ONCE) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1 << more.min(6)).min(LONGEST),
        }
    }

    /// When the next repair may be; `None` for at once.
    pub(super) fn not_before(self, now: Instant) -> Option<Instant> {
        let due = self.last?.checked_add(self.pause())?;
        (due > now).then_some(due)
    }

    /// Until when another program that removes the rules again is expected to do so.
    pub(super) fn expected_until(self) -> Option<Instant> {
        self.last?.checked_add(self.pause().max(CALM))
    }

    /// Whether the last repair followed another one: the rules were changed again soon after that.
    pub(super) const fn is_in_a_row(self) -> bool {
        self.in_a_row > 1
    }

    /// Counts a repair that ends `now`, of rules that were found changed at `found`.
    pub(super) fn repaired(&mut self, found: Instant, now: Instant) {
        let calm = self.pause().saturating_mul(2).max(FIGHT);
        let is_in_a_row = self.last.is_some_and(|last| found.saturating_duration_since(last) < calm);
        self.in_a_row = if is_in_a_row { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses after each of the repairs, which follow as soon as they may.
    fn pauses(count: usize) -> Vec<u64> {
        let (mut pace, mut now, mut pauses) = (Pace::default(), Instant::now(), Vec::new());
        for _ in 0..count {
            now = pace.not_before(now).unwrap_or(now);
            pace.repaired(now, now);
            pauses.push(pace.pause().as_secs());
        }
        pauses
    }

    #[test]
    fn pauses_grow_to_a_minute() {
        assert_eq!(pauses(12), [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn a_program_that_removes_rules_every_few_seconds_is_answered_at_once_for_ever() {
        for seconds in [5, 7, 10] {
            let (mut pace, mut now) = (Pace::default(), Instant::now());
            for _ in 0..20 {
                assert_eq!(pace.not_before(now), None, "{seconds} s");
                pace.repaired(now, now);
                now += Duration::from_secs(seconds);
            }
        }
    }

    /// On a machine with much to do, a repair takes long.
    #[test]
    fn what_counts_is_how_long_rules_were_left_alone() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..4 {
            let found = now + Duration::from_secs(1);
            now = found + FIGHT;
            pace.repaired(found, now);
        }
        assert_eq!(pace.pause().as_secs(), 2);
    }

    #[test]
    fn a_fight_that_ends_is_forgotten() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..6 {
            now = pace.not_before(now).unwrap_or(now);
            pace.repaired(now, now);
        }
        assert_eq!(pace.pause().as_secs(), 8);
        now += Duration::from_secs(16);
        assert_eq!(pace.not_before(now), None);
        pace.repaired(now, now);
        assert_eq!(pace.pause(), Duration::ZERO);
    }
}
