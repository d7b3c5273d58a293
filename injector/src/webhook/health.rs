//! Whether the webhook can do its work.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::live::Live;
use super::probe::Probe;
use super::progress::Progress;
use super::shutdown::{Ending, Stage};
use crate::certs::Serving;
use crate::certs::files::validity;

/// How long the answer of the admission port counts.
const FRESH: Duration = Duration::from_secs(1);

/// Knows what to ask.
#[derive(Debug)]
pub struct Health {
    live: Arc<Live>,
    serving: Arc<Serving>,
    probe: Probe,
    progress: Progress,
    ending: Ending,
    called: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Health {
    /// Asks these.
    #[must_use]
    pub fn new(
        live: Arc<Live>,
        serving: Arc<Serving>,
        probe: Probe,
        progress: Progress,
        ending: Ending,
    ) -> Self {
        Self { live, serving, probe, progress, ending, called: Mutex::default() }
    }

    /// Whether requests should be sent here; a line for every part, with what is wrong with it.
    pub async fn ready(&self) -> (bool, String) {
        let certificate = match self.serving.pair() {
            None => Err("there is none yet".to_owned()),
            Some(pair) => validity(&pair).map_or(Ok(()), |problem| Err(format!("it {problem}"))),
        };
        let config =
            if self.live.is_configured() { Ok(()) } else { Err("none has been read yet".to_owned()) };
        let port = if certificate.is_ok() { self.call().await } else { Err("not asked".to_owned()) };
        let end = match self.ending.stage() {
            Stage::Serving => Ok(()),
            Stage::Draining | Stage::Stopping => Err("asked to end".to_owned()),
        };
        let waiting = self.progress.snapshot().waiting;
        let cluster =
            if waiting.is_empty() { Ok(()) } else { Err(format!("waiting for {}", waiting.join("; "))) };
        let parts = [
            ("config", config),
            ("certificate", certificate),
            ("cluster", cluster),
            ("admission port", port),
            ("serving", end),
        ];
        let mut text = String::new();
        for (part, result) in &parts {
            // Writing to a string does not fail.
            let _ = match result {
                Ok(()) => writeln!(text, "ok   {part}"),
                Err(problem) => writeln!(text, "fail {part}: {problem}"),
            };
        }
        (parts.iter().all(|(_, result)| result.is_ok()), text)
    }

    /// Calls the admission port, or says what it said a moment ago. All who ask at once share one call.
    async fn call(&self) -> Result<(), String> {
        let mut called = self.called.lock().await;
        if let Some((when, result)) = &*called
            && when.elapsed() < FRESH
        {
            return result.clone();
        }
        let mut result = self.probe.call().await;
        if result.is_err() {
            // Once more: the certificate may have changed in between.
            result = self.probe.call().await;
        }
        *called = Some((Instant::now(), result.clone()));
        result
    }
}
