//! Self-signed certificates without a cluster, and the publication of a bundle: what is served and what is
//! trusted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use log::Level;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ca_file::CaFile;
use super::{Bundle, CertError, CertResolver, Names, ServingCert};
use crate::events::{Event, EventSink};

/// The longest sleep: clocks are adjusted, machines are suspended.
const MAX_SLEEP: Duration = Duration::from_secs(60 * 60);
/// After a failure.
const RETRY: Duration = Duration::from_secs(60);

/// The CAs to trust, as PEM; nothing until there are some.
pub(crate) type Trusted = watch::Receiver<Option<Arc<str>>>;

/// Why a self-signed certificate is not issued, or not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum SelfSignedError {
    /// The certificate cannot be issued.
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// The CA of the certificate cannot be written to the file of `--ca-out`.
    #[error("--ca-out {file}: cannot write the CA: {problem}")]
    CaOut { file: String, problem: String },
}

/// Publishes a bundle: the CAs first, then the certificate, so that clients trust it when it is served.
#[derive(Debug)]
pub struct Publisher {
    serving: Arc<CertResolver>,
    ca_out: Option<CaFile>,
    trusted: watch::Sender<Option<Arc<str>>>,
}

impl Publisher {
    /// Serves there, and writes the CAs to the file, if any.
    #[must_use]
    pub fn new(serving: Arc<CertResolver>, ca_out: Option<PathBuf>) -> Self {
        let ca_out = ca_out.map(CaFile::new);
        Self { serving, ca_out, trusted: watch::Sender::new(None) }
    }

    /// The CAs to trust, now and later.
    #[must_use]
    pub fn trusted(&self) -> Trusted {
        self.trusted.subscribe()
    }

    /// Publishes the CAs and serves the leaf.
    ///
    /// # Errors
    ///
    /// That the CAs could not be written to the file. The leaf is served all the same.
    pub async fn publish(&self, bundle: &Bundle) -> Result<(), SelfSignedError> {
        let trusted: Arc<str> = bundle.trusted_pem().into();
        self.trusted.send_replace(Some(Arc::clone(&trusted)));
        let leaf = bundle.leaf();
        self.serving.replace(ServingCert::parse(
            "tls.crt",
            leaf.cert.as_bytes(),
            "tls.key",
            leaf.key.as_bytes(),
        )?);
        let Some(file) = &self.ca_out else { return Ok(()) };
        let written = file.write(trusted).await;
        written.map_err(|error| SelfSignedError::CaOut { file: file.name(), problem: error.to_string() })
    }
}

/// A bundle in memory, for the life of the process.
#[derive(Debug)]
pub struct SelfSigned {
    bundle: Bundle,
    publisher: Publisher,
    published: bool,
}

impl SelfSigned {
    /// Issues a bundle and publishes it.
    ///
    /// # Errors
    ///
    /// Why it cannot be issued or published.
    pub async fn issue(
        names: &Names,
        publisher: Publisher,
        now: SystemTime,
    ) -> Result<Self, SelfSignedError> {
        let bundle = Bundle::fresh(names, now)?;
        publisher.publish(&bundle).await?;
        Ok(Self { bundle, publisher, published: true })
    }

    /// When it has to be renewed.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        self.bundle.due()
    }

    /// Renews what is due; whether anything was.
    /// Errors: why the bundle cannot be renewed or published; it is tried again the next time.
    pub(crate) async fn renew(&mut self, now: SystemTime) -> Result<bool, SelfSignedError> {
        if let Some(renewed) = self.bundle.renewed(now)? {
            self.bundle = renewed;
            self.published = false;
        }
        let unpublished = !self.published;
        if unpublished {
            self.publisher.publish(&self.bundle).await?;
            self.published = true;
        }
        Ok(unpublished)
    }

    /// Renews until `stopping`.
    pub async fn run(self, events: EventSink, stopping: CancellationToken) {
        stopping.run_until_cancelled(self.renew_in_a_loop(events)).await;
    }

    async fn renew_in_a_loop(mut self, events: EventSink) {
        let send = |level, message, detail: String| {
            events(Event { level, component: "certificate", message, detail });
        };
        let mut sleep = Duration::ZERO;
        loop {
            tokio::time::sleep(sleep).await;
            let now = SystemTime::now();
            let renewed = self.renew(now).await;
            sleep = self.due().duration_since(now).unwrap_or_default().min(MAX_SLEEP);
            match renewed {
                Ok(true) => send(Level::Info, "certificate renewed", self.bundle.phase().to_owned()),
                Ok(false) => {}
                Err(error) => {
                    send(Level::Warn, "certificate renewal failed", error.to_string());
                    sleep = RETRY;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[tokio::test]
    async fn certificate_is_issued_written_and_renewed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.crt");
        let names = Names::service("injector", "istio-system").and_loopback();
        let serving = Arc::new(CertResolver::default());
        let publisher = Publisher::new(Arc::clone(&serving), Some(file.clone()));
        let trusted = publisher.trusted();
        let start = SystemTime::now();
        let mut own = SelfSigned::issue(&names, publisher, start).await.expect("issued");
        let first = serving.pair().expect("served");
        assert!(
            ["injector.istio-system.svc", "localhost", "127.0.0.1", "::1"]
                .iter()
                .all(|name| first.names.iter().any(|found| found == name))
        );
        let read = || String::from_utf8(files::read(&file.to_string_lossy()).expect("read")).expect("text");
        assert_eq!(trusted.borrow().as_deref(), Some(read().as_str()));
        super::super::verify(&own.bundle.leaf().cert, &read(), "127.0.0.1", start).expect("accepted");

        assert_eq!(own.renew(start).await, Ok(false), "nothing to do");
        assert!(Arc::ptr_eq(&first, &serving.pair().expect("served")));
        let due = own.due();
        assert_eq!(own.renew(due).await, Ok(true));
        assert!(own.due() > due && serving.pair().expect("served").not_after > first.not_after);
        assert_eq!(trusted.borrow().as_deref(), Some(read().as_str()));
    }

    #[tokio::test]
    async fn failed_write_is_repeated() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).expect("a folder");
        let file = inner.join("ca.crt");
        let publisher = Publisher::new(Arc::default(), Some(file.clone()));
        let names = Names::service("injector", "istio-system");
        let start = SystemTime::now();
        let mut own = SelfSigned::issue(&names, publisher, start).await.expect("issued");
        std::fs::remove_dir_all(&inner).expect("removed");
        let due = own.due();
        own.renew(due).await.expect_err("there is no folder");
        std::fs::create_dir(&inner).expect("a folder");
        assert_eq!(own.renew(due).await, Ok(true));
        assert!(file.exists());
        assert_eq!(own.renew(due).await, Ok(false));
    }
}
