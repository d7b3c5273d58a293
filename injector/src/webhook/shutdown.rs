//! The two steps of a shutdown.

use tokio_util::sync::CancellationToken;

/// Both steps, for everything that runs until then.
#[derive(Clone, Debug, Default)]
pub(super) struct Shutdown {
    /// Not ready any more, but still accepting, until others have noticed.
    pub draining: CancellationToken,
    /// What was begun is finished, nothing new is begun. Background tasks end.
    pub stopping: CancellationToken,
}

impl Shutdown {
    /// Waits until nothing new is to be begun.
    pub(super) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }
}
