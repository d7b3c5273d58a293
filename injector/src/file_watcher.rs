//! Polls files at regular intervals.
//!
//! It compares content, not time stamps, so it follows swapped symbolic links, as in Kubernetes' volumes, and
//! misses no change, as inotify may. A change is used once two consecutive reads are equal, so that a file is
//! not used while it is being written.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

/// The content that was found last, and the one that was applied.
#[derive(Debug)]
pub(crate) struct Stable<T> {
    last: Option<T>,
    applied: T,
}

impl<T: Clone + PartialEq> Stable<T> {
    /// Starts with what is applied already.
    pub(crate) const fn new(applied: T) -> Self {
        Self { last: None, applied }
    }

    /// Records what is found now; it is returned if it is new and was found the last time too.
    pub(crate) fn record(&mut self, found: T) -> Option<T> {
        let stable = self.last.as_ref() == Some(&found) && self.applied != found;
        self.last = Some(found.clone());
        if stable {
            self.applied = found.clone();
        }
        stable.then_some(found)
    }
}

/// The time after which a file system counts as unresponsive.
pub(crate) const FILE_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads files at regular intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileWatcher {
    /// From one read to the next.
    pub interval: Duration,
    /// The time after which the file system of a read counts as unresponsive.
    pub timeout: Duration,
}

impl FileWatcher {
    /// With [`FILE_TIMEOUT`].
    pub(crate) const fn every(interval: Duration) -> Self {
        Self { interval, timeout: FILE_TIMEOUT }
    }

    /// The problem of an unresponsive file system.
    pub(crate) fn problem(&self) -> String {
        format!("not read for {:?}: the file system is unresponsive", self.timeout)
    }

    /// Reads in a loop, and applies what has changed. A read may hang, as on a network file system whose
    /// server is gone: it has a thread of its own, the next read begins when it has returned, and meanwhile
    /// `unresponsive` is applied.
    pub(crate) async fn watch<T: Clone + PartialEq + Send + 'static>(
        self,
        mut stable: Stable<T>,
        read: impl Fn() -> T + Clone + Send + 'static,
        unresponsive: T,
        mut apply: impl FnMut(T),
    ) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut reading = tokio::task::spawn_blocking(read.clone());
            let found = match tokio::time::timeout(self.timeout, &mut reading).await {
                Ok(found) => found,
                Err(_) => {
                    stable.applied = unresponsive.clone();
                    apply(unresponsive.clone());
                    reading.await
                }
            };
            // A read that panicked is logged by the panic hook.
            if let Ok(found) = found
                && let Some(found) = stable.record(found)
            {
                apply(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn change_counts_when_it_is_found_twice() {
        let mut stable = Stable::new("a");
        let applied: Vec<Option<&str>> =
            ["a", "b", "a", "b", "c", "c", "c", "d", "d"].map(|found| stable.record(found)).to_vec();
        assert_eq!(applied, [None, None, None, None, None, Some("c"), None, None, Some("d")]);
    }

    #[tokio::test]
    async fn unresponsive_file_system_is_reported_once_and_blocks_nothing() {
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let reads = Arc::new(Mutex::new(0));
        let read = {
            let reads = Arc::clone(&reads);
            move || {
                *reads.lock().unwrap() += 1;
                // Hangs until it is released; after that there is nothing to wait for.
                let _ = held.lock().unwrap().recv();
                "known"
            }
        };
        let (sender, mut applied) = tokio::sync::mpsc::unbounded_channel();
        let watcher = FileWatcher { interval: Duration::from_millis(1), timeout: Duration::from_millis(10) };
        let watching = tokio::spawn(
            watcher.watch(Stable::new("known"), read, "unresponsive", move |what| sender.send(what).unwrap()),
        );
        assert_eq!(applied.recv().await, Some("unresponsive"));
        tokio::time::sleep(10 * watcher.timeout).await;
        assert!(applied.is_empty());
        assert_eq!(*reads.lock().unwrap(), 1, "no second thread");
        drop(release);
        assert_eq!(applied.recv().await, Some("known"), "it is new again");
        watching.abort();
    }
}
