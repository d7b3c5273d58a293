//! Signals: SIGTERM, SIGINT and SIGHUP.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// SIGTERM and SIGINT. SIGHUP, with which other programs reload their files, is ignored: files are watched anyway. A
/// thread of its own receives them, so that the webhook ends even when the threads that serve are blocked.
#[derive(Debug)]
pub(super) struct Signals(mpsc::UnboundedReceiver<()>);

impl Signals {
    /// Receives from now on.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) async fn new() -> io::Result<Self> {
        let (received, receiver) = mpsc::unbounded_channel();
        let (started, listening) = oneshot::channel();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let signals = Builder::new_current_thread().enable_io().build().and_then(|runtime| {
                let all = runtime.block_on(async { listen() })?;
                Ok((runtime, all))
            });
            match signals {
                Ok((runtime, all)) => {
                    let _ = started.send(Ok(()));
                    runtime.block_on(receive(all, received));
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })?;
        listening.await.map_err(io::Error::other)??;
        Ok(Self(receiver))
    }

    /// The next SIGTERM or SIGINT.
    pub(super) async fn next(&mut self) {
        // Its thread does not end before this does.
        let _ = self.0.recv().await;
    }
}

async fn receive(
    [mut terminate, mut interrupt, mut hang_up]: [Signal; 3],
    received: mpsc::UnboundedSender<()>,
) {
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {
                log::info!("SIGHUP ignored: files are watched");
                continue;
            }
        }
        if received.send(()).is_err() {
            return;
        }
    }
}

fn listen() -> io::Result<[Signal; 3]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?])
}
