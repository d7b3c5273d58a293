//! The signals that end the webhook.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// SIGTERM and SIGINT. They are heard by a thread of their own: whatever holds up the threads that serve, the webhook
/// can be ended.
#[derive(Debug)]
pub struct Signals(mpsc::UnboundedReceiver<()>);

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub async fn new() -> io::Result<Self> {
        let (heard, signals) = mpsc::unbounded_channel();
        let (started, listens) = oneshot::channel();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let listening = Builder::new_current_thread().enable_io().build().and_then(|runtime| {
                let both = runtime.block_on(async { listen() })?;
                Ok((runtime, both))
            });
            match listening {
                Ok((runtime, both)) => {
                    let _ = started.send(Ok(()));
                    runtime.block_on(hear(both, heard));
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })?;
        listens.await.map_err(io::Error::other)??;
        Ok(Self(signals))
    }

    /// The next one.
    pub async fn next(&mut self) {
        // Its thread does not end before this does.
        let _ = self.0.recv().await;
    }
}

async fn hear((mut terminate, mut interrupt): (Signal, Signal), heard: mpsc::UnboundedSender<()>) {
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if heard.send(()).is_err() {
            return;
        }
    }
}

fn listen() -> io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
}
