//! Readiness of the webhook: the readiness probe `/readyz`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config_store::ConfigStore;
use super::probe::Probe;
use crate::certs::CertResolver;
use crate::certs::files::validity;
use crate::cluster::Status;

/// The time for which the result of a probe is used.
const PROBE_LIFE: Duration = Duration::from_secs(1);

/// What readiness depends on.
#[derive(Debug)]
pub(super) struct Health {
    /// A config is loaded.
    pub config: Arc<ConfigStore>,
    /// A valid certificate is served.
    pub serving: Arc<CertResolver>,
    /// The admission port responds.
    pub probe: Probe,
    /// What is needed of the cluster has been read.
    pub cluster: Option<watch::Receiver<Status>>,
    /// No shutdown has begun.
    pub draining: CancellationToken,
    /// The last probe.
    pub last_probe: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Health {
    /// Whether requests should be sent here; a line for each part, with its problem.
    pub(super) async fn ready(&self) -> (bool, String) {
        let certificate = match self.serving.pair() {
            None => Err("not issued yet".to_owned()),
            Some(pair) => validity(&pair).map_or(Ok(()), |problem| Err(format!("it {problem}"))),
        };
        let config = if self.config.is_configured() { Ok(()) } else { Err("not loaded yet".to_owned()) };
        let port = if certificate.is_ok() { self.probe().await } else { Err("not probed".to_owned()) };
        let serving = if self.draining.is_cancelled() { Err("shutting down".to_owned()) } else { Ok(()) };
        let waiting = self.cluster.as_ref().map(|status| status.borrow().waiting()).unwrap_or_default();
        let cluster =
            if waiting.is_empty() { Ok(()) } else { Err(format!("waiting for {}", waiting.join("; "))) };
        let parts = [
            ("config", config),
            ("certificate", certificate),
            ("cluster", cluster),
            ("admission port", port),
            ("serving", serving),
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

    /// Probes the admission port, or returns the result of a moment ago. Requests at the same time share one
    /// probe.
    async fn probe(&self) -> Result<(), String> {
        let mut last = self.last_probe.lock().await;
        if let Some((when, result)) = &*last
            && when.elapsed() < PROBE_LIFE
        {
            return result.clone();
        }
        let mut result = self.probe.call().await;
        if result.is_err() {
            // The certificate may have changed in between.
            result = self.probe.call().await;
        }
        *last = Some((Instant::now(), result.clone()));
        result
    }
}
