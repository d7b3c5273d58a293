//! How long to wait after failures.

use std::time::{Duration, SystemTime};

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// Twice as long after every failure, up to half a minute; a success starts anew.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) const fn new() -> Self {
        Self(FIRST)
    }

    pub(super) const fn reset(&mut self) {
        self.0 = FIRST;
    }

    /// The next wait, a quarter of it by chance: replicas that failed together come back one by one.
    pub(super) fn wait(&mut self) -> Duration {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.wait_with(now.subsec_micros() % 1000)
    }

    fn wait_with(&mut self, permille: u32) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST);
        wait * 3 / 4 + wait * permille / 4000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_ends_and_starts_anew() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..10).map(|_| backoff.wait_with(1000)).collect();
        assert!(waits.starts_with(&[FIRST, FIRST * 2, FIRST * 4]));
        assert_eq!(waits.last(), Some(&LONGEST));
        backoff.reset();
        assert_eq!(backoff.wait_with(0), FIRST * 3 / 4);
    }
}
