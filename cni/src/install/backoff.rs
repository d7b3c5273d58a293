//! Exponential backoff: the delay before the entry is written again after another program has changed it.

use std::time::{Duration, Instant};

/// The first delay, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// A change so soon after ours may be a reaction to it. A later one is not: to undo it at once provokes none.
const REACTION: Duration = Duration::from_secs(2);

/// Doubles from 1 s to 60 s while another program reacts to what is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteBackoff {
    last: Option<(Instant, Duration)>,
    lost: Option<Instant>,
    /// Another file became the first; the entry is still in the old one.
    moved: bool,
}

impl RewriteBackoff {
    /// The entry was written. Until when it is not written again.
    pub fn written(&mut self, now: Instant) {
        let reacted = self.has_reacted(now);
        let delay = self.last.filter(|_| reacted).map_or(FIRST, |(_, delay)| (delay * 2).min(LONGEST));
        *self = Self { last: Some((now, delay)), ..Self::default() };
    }

    /// What was written is not there any more: since the file was changed, if that was after it was written;
    /// it may have taken a while to find that out. Returns whether that is new.
    pub fn lost(&mut self, now: Instant, changed: Option<Instant>) -> bool {
        let after = |at: &Instant| self.last.is_none_or(|(last, _)| *at > last);
        let at = changed.filter(after).unwrap_or(now);
        self.lost.replace(self.lost.unwrap_or(at)).is_none()
    }

    /// Another file became the first at this time. The entry is still in the old one, so no program reacted
    /// to it.
    pub fn moved(&mut self, now: Instant, changed: Option<Instant>) {
        self.lost(now, changed);
        self.moved = true;
    }

    /// What was written is there.
    pub const fn found(&mut self) {
        self.lost = None;
        self.moved = false;
    }

    /// The time since the written entry has been missing.
    #[must_use]
    pub fn missing(&self, now: Instant) -> Duration {
        self.lost.map_or(Duration::ZERO, |lost| now.duration_since(lost))
    }

    /// The time to wait before it is written again.
    #[must_use]
    pub fn delay(&self, now: Instant) -> Duration {
        match self.last {
            Some((last, delay)) if self.has_reacted(now) => (last + delay).saturating_duration_since(now),
            Some(_) | None => Duration::ZERO,
        }
    }

    fn has_reacted(&self, now: Instant) -> bool {
        let lost = self.lost.unwrap_or(now);
        !self.moved && self.last.is_some_and(|(last, _)| lost.duration_since(last) < REACTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_minute_while_the_other_program_reacts() {
        let mut backoff = RewriteBackoff::default();
        let mut now = Instant::now();
        assert_eq!(backoff.delay(now), Duration::ZERO);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            backoff.written(now);
            assert!(backoff.lost(now, None));
            assert_eq!(backoff.delay(now), Duration::from_secs(seconds));
            now += Duration::from_secs(seconds);
            assert!(!backoff.lost(now, None), "it has been missing since then");
            assert_eq!(backoff.missing(now), Duration::from_secs(seconds));
            assert_eq!(backoff.delay(now), Duration::ZERO);
        }
    }

    #[test]
    fn change_that_is_not_a_reaction_is_undone_at_once_and_resets_the_backoff() {
        let mut backoff = RewriteBackoff::default();
        let mut now = Instant::now();
        for _ in 0..8 {
            backoff.written(now);
            backoff.lost(now, None);
            now += backoff.delay(now);
        }
        backoff.written(now);
        for _ in 0..8 {
            now += REACTION;
            backoff.lost(now, None);
            assert_eq!(backoff.delay(now), Duration::ZERO);
            backoff.written(now);
        }
        backoff.lost(now, None);
        assert_eq!(backoff.delay(now), FIRST);
    }

    #[test]
    fn change_of_the_first_file_is_not_a_reaction() {
        let mut backoff = RewriteBackoff::default();
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        backoff.written(at(0));
        backoff.moved(at(500), Some(at(400)));
        assert_eq!(
            (backoff.delay(at(500)), backoff.missing(at(500))),
            (Duration::ZERO, Duration::from_millis(100))
        );
        backoff.written(at(500));
        assert!(backoff.lost(at(600), None));
        assert_eq!(backoff.delay(at(600)), FIRST - Duration::from_millis(100));
    }

    #[test]
    fn time_of_the_change_counts_however_late_it_is_found() {
        let begin = Instant::now();
        for (changed, delay) in [
            (Some(begin + Duration::from_millis(5)), FIRST),
            (Some(begin + REACTION), Duration::ZERO),
            // Not that of the change, but what was written.
            (Some(begin), Duration::ZERO),
            (None, Duration::ZERO),
        ] {
            let mut backoff = RewriteBackoff::default();
            backoff.written(begin);
            backoff.lost(begin + 2 * REACTION, changed);
            let later = begin + 2 * REACTION;
            backoff.written(later);
            assert_eq!(backoff.delay(later), if delay.is_zero() { FIRST } else { 2 * FIRST }, "{changed:?}");
        }
    }
}
