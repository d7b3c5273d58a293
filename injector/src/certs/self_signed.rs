//! Certificates of our own without a cluster, and how a bundle becomes what is served and trusted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::{Bundle, CertError, Names, Pair, Serving};
use crate::files;
use crate::notice::{Say, info, warn};

/// The longest sleep: clocks are set, machines are suspended.
const NAP: Duration = Duration::from_secs(60 * 60);
/// After a failure.
const RETRY: Duration = Duration::from_secs(60);

/// The CAs to trust, as PEM; nothing until there are some.
pub type Trusted = watch::Receiver<Option<Arc<str>>>;

/// Where a bundle goes: callers learn whom to trust before anything is served.
#[derive(Debug)]
pub struct Publisher {
    serving: Arc<Serving>,
    ca_out: Option<PathBuf>,
    trusted: watch::Sender<Option<Arc<str>>>,
}

impl Publisher {
    /// Serves there, and writes the CAs to the file if there is one.
    #[must_use]
    pub fn new(serving: Arc<Serving>, ca_out: Option<PathBuf>) -> Self {
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
    pub fn publish(&self, bundle: &Bundle) -> Result<(), CertError> {
        let trusted = bundle.trusted_pem();
        let file = self.ca_out.as_ref().map(|path| path.to_string_lossy());
        let written = file.map_or(Ok(()), |file| {
            files::replace(&file, &trusted).map_err(|error| CertError {
                source: file.to_string(),
                problem: format!("the CA cannot be written: {error}"),
            })
        });
        self.trusted.send_replace(Some(trusted.into()));
        let leaf = bundle.leaf();
        self.serving.replace(Pair::parse("tls.crt", leaf.cert.as_bytes(), "tls.key", leaf.key.as_bytes())?);
        written
    }
}

/// A bundle that lives in memory, and as long as the process.
#[derive(Debug)]
pub struct SelfSigned {
    bundle: Bundle,
    publisher: Publisher,
}

impl SelfSigned {
    /// Makes a bundle and publishes it.
    ///
    /// # Errors
    ///
    /// Why it cannot be made or published.
    pub fn issue(names: &Names, publisher: Publisher, now: SystemTime) -> Result<Self, CertError> {
        let bundle = Bundle::fresh(names, now)?;
        publisher.publish(&bundle)?;
        Ok(Self { bundle, publisher })
    }

    /// Does what is due; says when to come again.
    ///
    /// # Errors
    ///
    /// Why the bundle cannot be renewed or published; what was served is still served.
    pub fn renew(&mut self, now: SystemTime) -> Result<SystemTime, CertError> {
        if let Some(renewed) = self.bundle.renewed(now)? {
            self.bundle = renewed;
            self.publisher.publish(&self.bundle)?;
        }
        Ok(self.bundle.due())
    }

    /// Renews until the end.
    pub async fn run(mut self, say: Say, mut shutdown: watch::Receiver<bool>) {
        let mut due = self.bundle.due();
        loop {
            let sleep = due.duration_since(SystemTime::now()).unwrap_or_default().min(NAP);
            tokio::select! {
                _ = shutdown.wait_for(|ended| *ended) => return,
                () = tokio::time::sleep(sleep) => {}
            }
            let now = SystemTime::now();
            match self.renew(now) {
                Ok(next) if next != due => {
                    info(&say, "certificate", format!("renewed: {}", self.bundle.phase()));
                    due = next;
                }
                Ok(_) => {}
                Err(error) => {
                    warn(&say, "certificate", error.to_string());
                    due = now + RETRY;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_written_renewed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.crt");
        let names = Names::service("injector", "istio-system").and_loopback();
        let serving = Arc::new(Serving::default());
        let publisher = Publisher::new(Arc::clone(&serving), Some(file.clone()));
        let trusted = publisher.trusted();
        let start = SystemTime::now();
        let mut own = SelfSigned::issue(&names, publisher, start).expect("issued");
        let first = serving.pair().expect("served");
        assert!(
            ["injector.istio-system.svc", "localhost", "127.0.0.1", "::1"]
                .iter()
                .all(|name| first.names.iter().any(|found| found == name))
        );
        let read = || String::from_utf8(files::read(&file.to_string_lossy()).expect("read")).expect("text");
        assert_eq!(trusted.borrow().as_deref(), Some(read().as_str()));
        super::super::verify(&own.bundle.leaf().cert, &read(), "127.0.0.1", start).expect("accepted");

        let due = own.renew(start).expect("nothing to do");
        assert!(Arc::ptr_eq(&first, &serving.pair().expect("served")));
        let next = own.renew(due).expect("renewed");
        assert!(next > due && serving.pair().expect("served").not_after > first.not_after);
        assert_eq!(trusted.borrow().as_deref(), Some(read().as_str()));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let publisher = Publisher::new(Arc::default(), Some("/nowhere/ca.crt".into()));
        let names = Names::service("injector", "istio-system");
        let error = SelfSigned::issue(&names, publisher, SystemTime::now()).expect_err("no such folder");
        assert!(error.to_string().starts_with("/nowhere/ca.crt: the CA cannot be written"), "{error}");
    }
}
