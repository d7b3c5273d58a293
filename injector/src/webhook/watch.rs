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

/// How long a file system may take before that is told of.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How files are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From one look to the next.
    pub interval: Duration,
    /// How long a look may take before that is news of its own.
    pub patience: Duration,
}

impl Pace {
    /// At this interval; a look of [`PATIENCE`] is told of.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { interval, patience: PATIENCE }
    }

    /// What is said of a look that takes longer.
    #[must_use]
    pub fn problem(&self) -> String {
        format!("has not been read for {:?}: the file system does not answer", self.patience)
    }
}

/// Looks at regular times until the end, and acts on what has changed for good. A look may hang, as on a network file
/// system whose server is gone: it has a thread of its own, there is no other look until it is back, and `late` is
/// acted on in the meantime.
pub async fn watch<T: Clone + PartialEq + Send + 'static>(
    pace: Pace,
    mut ending: Ending,
    mut settled: Settled<T>,
    look: impl Fn() -> T + Clone + Send + 'static,
    late: T,
    mut act: impl FnMut(T),
) {
    let mut ticks = tokio::time::interval(pace.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looks = async {
        loop {
            ticks.tick().await;
            let mut looking = tokio::task::spawn_blocking(look.clone());
            let found = match tokio::time::timeout(pace.patience, &mut looking).await {
                Ok(found) => found,
                Err(_) => {
                    settled.taken = late.clone();
                    act(late.clone());
                    looking.await
                }
            };
            // A look that panicked has said so.
            if let Ok(found) = found
                && let Some(found) = settled.look(found)
            {
                act(found);
            }
        }
    };
    tokio::select! {
        () = ending.stopping() => {}
        () = looks => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::webhook::shutdown::{Shutdown, Stage};

    #[test]
    fn a_change_counts_when_it_is_seen_twice() {
        let mut settled = Settled::new("a");
        let seen: Vec<Option<&str>> =
            ["a", "b", "a", "b", "c", "c", "c", "d", "d"].map(|found| settled.look(found)).to_vec();
        assert_eq!(seen, [None, None, None, None, None, Some("c"), None, None, Some("d")]);
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_told_of_once_and_nobody_waits_for_it() {
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let begun = Arc::new(Mutex::new(0));
        let look = {
            let begun = Arc::clone(&begun);
            move || {
                *begun.lock().unwrap() += 1;
                // Hangs until it is released; from then on there is nothing to wait for.
                let _ = held.lock().unwrap().recv();
                "known"
            }
        };
        let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let shutdown = Shutdown::default();
        let pace = Pace { interval: Duration::from_millis(1), patience: Duration::from_millis(10) };
        let watching =
            tokio::spawn(watch(pace, shutdown.listen(), Settled::new("known"), look, "late", move |what| {
                said.send(what).unwrap()
            }));
        assert_eq!(heard.recv().await, Some("late"));
        tokio::time::sleep(10 * pace.patience).await;
        assert!(heard.is_empty());
        assert_eq!(*begun.lock().unwrap(), 1, "no second thread");
        drop(release);
        assert_eq!(heard.recv().await, Some("known"), "it is news again");
        shutdown.advance(Stage::Stopping);
        watching.await.unwrap();
    }
}
