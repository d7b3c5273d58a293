//! How far the parts of the webhook are that do not answer requests.

use std::fmt;
use std::sync::Arc;

/// How far the parts are that are read from a cluster or written to it.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn() -> Snapshot + Send + Sync>>);

/// The same at one moment; empty without a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What answers would be wrong without and is not there yet, each as a sentence.
    pub waiting: Vec<String>,
    /// Every part that was asked for, and whether there is a problem with it.
    pub parts: Vec<(&'static str, bool)>,
    /// How often a caBundle was written.
    pub ca_bundle_writes: u64,
    /// How often a repair of a caBundle was put off because somebody else keeps changing it.
    pub ca_bundle_disputes: u64,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

impl Progress {
    #[cfg(feature = "cluster")]
    pub(super) fn of(snapshot: impl Fn() -> Snapshot + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(snapshot)))
    }

    /// How far they are now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.0.as_ref().map_or_else(Snapshot::default, |snapshot| snapshot())
    }
}
