//! The signals that end the webhook.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

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
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let listening = {
            let _context = runtime.enter();
            listen()
        };
        let (mut terminate, mut interrupt) = match listening {
            Ok(both) => both,
            Err(error) => {
                // Elsewhere than in its own thread a runtime cannot be waited for.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let (heard, signals) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                    if heard.send(()).is_err() {
                        return;
                    }
                }
            });
        })?;
        Ok(Self(signals))
    }

    /// The next one.
    pub async fn next(&mut self) {
        // Its thread does not end before this does.
        let _ = self.0.recv().await;
    }
}

fn listen() -> io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
}
