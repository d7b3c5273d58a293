//! The signals that end the webhook, and the one that does not.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// SIGTERM and SIGINT. SIGHUP, by which other programs read their files again, ends nothing: this one looks at its files
/// without being told, and says so. All are heard by a thread of their own: whatever holds up the threads that serve, the webhook
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
                let all = runtime.block_on(async { listen() })?;
                Ok((runtime, all))
            });
            match listening {
                Ok((runtime, all)) => {
                    let _ = started.send(Ok(()));
                    runtime.block_on(hear(all, heard));
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

async fn hear([mut terminate, mut interrupt, mut hang_up]: [Signal; 3], heard: mpsc::UnboundedSender<()>) {
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {
                log::info!("SIGHUP ignored: files are looked at again without it");
                continue;
            }
        }
        if heard.send(()).is_err() {
            return;
        }
    }
}

fn listen() -> io::Result<[Signal; 3]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?])
}
