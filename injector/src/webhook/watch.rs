//! Files that are looked at again and again.
//!
//! Content is compared, not time stamps: that sees symbolic links which are swapped, as Kubernetes does with its
//! volumes, and needs nothing that the kernel may lose. A change counts when two looks in a row found the same, so
//! that a file is not read while somebody writes it.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::shutdown::Ending;

/// What was found, and what was made of it.
#[derive(Debug)]
pub struct Settled<T> {
    last: Option<T>,
    taken: T,
}

impl<T: Clone + PartialEq> Settled<T> {
    /// Starts with what is known.
    pub const fn new(taken: T) -> Self {
        Self { last: None, taken }
    }

    /// Notes what is found now; something, if it is new and was found before.
    pub fn look(&mut self, found: T) -> Option<T> {
        let settled = self.last.as_ref() == Some(&found) && self.taken != found;
        self.last = Some(found.clone());
        if settled {
            self.taken = found.clone();
        }
        settled.then_some(found)
    }
}

/// Looks at regular times until the end, and acts on what has changed for good.
pub async fn watch<T: Clone + PartialEq>(
    interval: Duration,
    mut ending: Ending,
    mut settled: Settled<T>,
    mut look: impl FnMut() -> T,
    mut act: impl FnMut(T),
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = ending.stopping() => return,
            _ = ticks.tick() => if let Some(found) = settled.look(look()) {
                act(found);
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_when_it_is_seen_twice() {
        let mut settled = Settled::new("a");
        let seen: Vec<Option<&str>> =
            ["a", "b", "a", "b", "c", "c", "c", "d", "d"].map(|found| settled.look(found)).to_vec();
        assert_eq!(seen, [None, None, None, None, None, Some("c"), None, None, Some("d")]);
    }
}
