//! TLS certificate and key in files: watched, and reloaded when they change.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{CertError, CertResolver, ServingCert};
use crate::file_watcher::{FileWatcher, Stable};
use crate::files;

/// The content of the two files, or why it cannot be read.
type Found = Result<Content, CertError>;

/// The content of the two files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    cert: Vec<u8>,
    key: Vec<u8>,
    /// Why it is not valid now: a pair that becomes valid, or ceases to be, has changed.
    problem: Option<&'static str>,
}

/// The two files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertFiles {
    /// The chain, leaf first.
    pub cert: String,
    /// The leaf's key.
    pub key: String,
}

impl CertFiles {
    /// Reads and validates them, and serves the pair.
    /// Errors: why they cannot be served.
    pub(crate) fn open(self, serving: Arc<CertResolver>) -> Result<WatchedCert, CertError> {
        let found = self.read();
        let pair = self.pair(&found)?;
        if let Some(problem) = validity(&pair) {
            log::warn!(file = self.cert.as_str(), problem; "certificate not valid now");
        }
        serving.replace(pair);
        Ok(WatchedCert { files: self, serving, found })
    }

    fn read(&self) -> Found {
        let read = |name: &String| {
            files::read_regular(name)
                .map_err(|error| CertError { subject: name.clone(), problem: error.to_string() })
        };
        let (cert, key) = (read(&self.cert)?, read(&self.key)?);
        let problem = self.parse(&cert, &key).ok().and_then(|pair| validity(&pair));
        Ok(Content { cert, key, problem })
    }

    fn parse(&self, cert: &[u8], key: &[u8]) -> Result<ServingCert, CertError> {
        ServingCert::parse(&self.cert, cert, &self.key, key)
    }

    fn pair(&self, found: &Found) -> Result<ServingCert, CertError> {
        let content = found.as_ref().map_err(Clone::clone)?;
        self.parse(&content.cert, &content.key)
    }
}

/// Files whose pair is served.
#[derive(Debug)]
pub(crate) struct WatchedCert {
    files: CertFiles,
    serving: Arc<CertResolver>,
    found: Found,
}

impl WatchedCert {
    /// Serves the pair in the files until `stopping`; an invalid one is rejected, and the last valid one
    /// stays active.
    pub(crate) async fn watch(self, interval: Duration, stopping: CancellationToken) {
        let Self { files, serving, found } = self;
        let apply = |found: Found| match files.pair(&found).and_then(|pair| better(&files, &serving, pair)) {
            Ok(pair) => {
                log::info!(
                    file = files.cert.as_str(),
                    names = pair.names.join(" ").as_str(),
                    expires = timestamp(pair.not_after).as_str();
                    "certificate loaded"
                );
                serving.replace(pair);
            }
            Err(error) => {
                serving.errors().inc();
                log::error!(detail = error.to_string().as_str(); "certificate rejected, the last valid one stays active");
            }
        };
        let watcher = FileWatcher::every(interval);
        let subject = format!("{}, {}", files.cert, files.key);
        let unresponsive = Err(CertError { subject, problem: watcher.problem() });
        let read = {
            let files = files.clone();
            move || files.read()
        };
        stopping.run_until_cancelled(watcher.watch(Stable::new(found), read, unresponsive, apply)).await;
    }
}

/// A pair that is not valid now does not replace one that is.
fn better(files: &CertFiles, serving: &CertResolver, pair: ServingCert) -> Result<ServingCert, CertError> {
    match (validity(&pair), serving.pair().and_then(|old| validity(&old))) {
        (Some(problem), None) => Err(CertError { subject: files.cert.clone(), problem: problem.to_owned() }),
        (Some(problem), Some(_)) => {
            log::warn!(file = files.cert.as_str(), problem; "certificate not valid now");
            Ok(pair)
        }
        (None, _) => Ok(pair),
    }
}

/// Why a pair is not valid now.
pub(crate) fn validity(pair: &ServingCert) -> Option<&'static str> {
    let now = SystemTime::now();
    if now < pair.not_before {
        Some("is not valid yet")
    } else if now > pair.not_after {
        Some("has expired")
    } else {
        None
    }
}

/// As logs show a time: RFC 3339.
pub(crate) fn timestamp(time: SystemTime) -> String {
    Timestamp::try_from(time).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);

    /// A pair that is valid from then on.
    fn write(files: &CertFiles, name: &str, not_before: SystemTime) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = not_before.into();
        let cert = params.self_signed(&key).expect("a certificate");
        files::replace(&files.cert, &cert.pem()).expect("written");
        files::replace(&files.key, &key.serialize_pem()).expect("written");
    }

    #[tokio::test]
    async fn pair_is_served_once_it_becomes_valid() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let pair = CertFiles { cert: path("tls.crt"), key: path("tls.key") };
        let now = SystemTime::now();
        write(&pair, "old", now - Duration::from_secs(60));
        let (serving, stopping) = (Arc::new(CertResolver::default()), CancellationToken::new());
        let watched = pair.clone().open(Arc::clone(&serving)).expect("served");
        let watching = tokio::spawn(watched.watch(INTERVAL, stopping.clone()));
        let served = || serving.pair().expect("served").names.join(" ");
        write(&pair, "new", now + Duration::from_secs(5));
        while serving.errors().get() == 0 {
            assert_eq!(served(), "old", "not rejected before its time");
            tokio::time::sleep(INTERVAL).await;
        }
        while served() != "new" {
            tokio::time::sleep(INTERVAL).await;
        }
        stopping.cancel();
        watching.await.expect("ended");
    }
}
