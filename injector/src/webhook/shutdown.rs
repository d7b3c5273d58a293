//! The way to the end, for whoever runs until then.

use tokio::sync::watch;

/// How far along the end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Serving.
    Serving,
    /// Asked to end: not ready any more, still accepting, until others have noticed.
    Draining,
    /// What was begun is finished, nothing new is.
    Stopping,
}

/// Announces the end.
#[derive(Debug)]
pub struct Shutdown {
    stage: watch::Sender<Stage>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { stage: watch::Sender::new(Stage::Serving) }
    }
}

impl Shutdown {
    /// Goes on to a stage; there is no way back.
    pub fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            *now = stage.max(*now);
            later
        });
    }

    /// Somebody who wants to hear of it.
    #[must_use]
    pub fn listen(&self) -> Ending {
        Ending { stage: self.stage.subscribe() }
    }
}

/// Hears of the end.
#[derive(Clone, Debug)]
pub struct Ending {
    stage: watch::Receiver<Stage>,
}

impl Ending {
    /// The stage now.
    #[must_use]
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Waits until nothing new is to be begun. Background tasks end then.
    pub async fn stopping(&mut self) {
        // An error means that the one who announces is gone: that is the end too.
        let _ = self.stage.wait_for(|stage| *stage >= Stage::Stopping).await;
    }
}
