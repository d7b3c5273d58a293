//! Graceful shutdown: its two steps, and the signals that begin it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The two steps of a shutdown, for everything that runs until then.
#[derive(Clone, Debug, Default)]
pub(super) struct Shutdown {
    /// Not ready any more, but still accepting, until others have noticed.
    pub draining: CancellationToken,
    /// Open requests are finished, no new ones are accepted. Background tasks end.
    pub stopping: CancellationToken,
}

/// SIGTERM and SIGINT. SIGHUP, with which other programs reload their files, is ignored: files are watched
/// anyway.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Receives from now on.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next SIGTERM or SIGINT.
    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => log::info!("SIGHUP ignored: files are watched"),
            }
        }
    }
}
