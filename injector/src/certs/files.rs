//! A certificate and its key in files that somebody else replaces.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{CertError, Pair, Serving};
use crate::files;
use crate::webhook::shutdown::Ending;
use crate::webhook::watch::{Pace, Settled, watch};

/// What the two files hold, or why that is not known.
type Found = Result<Held, CertError>;

/// What the two files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    cert: Vec<u8>,
    key: Vec<u8>,
    /// Why it is not valid now: a pair that becomes valid, or ceases to be, has changed.
    problem: Option<&'static str>,
}

/// The two files.
#[derive(Clone, Debug)]
pub struct PairFiles {
    /// The chain, leaf first.
    pub cert: String,
    /// The leaf's key.
    pub key: String,
}

impl PairFiles {
    /// Reads and checks them, and looks at them from then on.
    ///
    /// # Errors
    ///
    /// Why they cannot be served.
    pub fn open(self, serving: Arc<Serving>) -> Result<WatchedPair, CertError> {
        let found = self.read();
        let pair = self.pair(&found)?;
        if let Some(problem) = validity(&pair) {
            log::warn!(file = self.cert.as_str(); "the certificate {problem}");
        }
        serving.replace(pair);
        Ok(WatchedPair { files: self, serving, found })
    }

    fn read(&self) -> Found {
        let read = |name: &String| {
            files::read_regular(name)
                .map_err(|error| CertError { source: name.clone(), problem: error.to_string() })
        };
        let (cert, key) = (read(&self.cert)?, read(&self.key)?);
        let problem = self.parse(&cert, &key).ok().and_then(|pair| validity(&pair));
        Ok(Held { cert, key, problem })
    }

    fn parse(&self, cert: &[u8], key: &[u8]) -> Result<Pair, CertError> {
        Pair::parse(&self.cert, cert, &self.key, key)
    }

    fn pair(&self, found: &Found) -> Result<Pair, CertError> {
        let held = found.as_ref().map_err(Clone::clone)?;
        self.parse(&held.cert, &held.key)
    }
}

/// Files whose pair is served.
#[derive(Debug)]
pub struct WatchedPair {
    files: PairFiles,
    serving: Arc<Serving>,
    found: Found,
}

impl WatchedPair {
    /// Serves what the files hold, until the end; what cannot be served leaves the old pair in place.
    pub async fn watch(self, interval: Duration, ending: Ending) {
        let Self { files, serving, found } = self;
        let act = |found: Found| match files.pair(&found).and_then(|pair| better(&files, &serving, pair)) {
            Ok(pair) => {
                log::info!(
                    file = files.cert.as_str(),
                    names = pair.names.join(" ").as_str(),
                    expires = humantime(pair.not_after).as_str();
                    "certificate in force"
                );
                serving.replace(pair);
            }
            Err(error) => {
                serving.errors().inc();
                log::error!(detail = error.to_string().as_str(); "certificate refused, the old one stays");
            }
        };
        let pace = Pace::every(interval);
        let source = format!("{}, {}", files.cert, files.key);
        let late = Err(CertError { source, problem: pace.problem() });
        let look = {
            let files = files.clone();
            move || files.read()
        };
        watch(pace, ending, Settled::new(found), look, late, act).await;
    }
}

/// A pair that is not valid now does not take the place of one that is.
fn better(files: &PairFiles, serving: &Serving, pair: Pair) -> Result<Pair, CertError> {
    match (validity(&pair), serving.pair().and_then(|old| validity(&old))) {
        (Some(problem), None) => Err(CertError { source: files.cert.clone(), problem: problem.to_owned() }),
        (Some(problem), Some(_)) => {
            log::warn!(file = files.cert.as_str(); "the certificate {problem}");
            Ok(pair)
        }
        (None, _) => Ok(pair),
    }
}

/// Why a pair is not valid now.
#[must_use]
pub fn validity(pair: &Pair) -> Option<&'static str> {
    let now = SystemTime::now();
    if now < pair.not_before {
        Some("is not valid yet")
    } else if now > pair.not_after {
        Some("has expired")
    } else {
        None
    }
}

/// Seconds since 1970, as text.
fn humantime(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = x509_parser::time::ASN1Time::from_timestamp(i64::try_from(seconds).unwrap_or(i64::MAX));
    time.map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::webhook::shutdown::{Shutdown, Stage};

    const PACE: Duration = Duration::from_millis(10);

    /// A pair that is valid from then on.
    fn write(files: &PairFiles, name: &str, not_before: SystemTime) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = not_before.into();
        let cert = params.self_signed(&key).expect("a certificate");
        files::replace(&files.cert, &cert.pem()).expect("written");
        files::replace(&files.key, &key.serialize_pem()).expect("written");
    }

    #[tokio::test]
    async fn a_pair_that_comes_before_its_time_is_served_when_it_is_valid() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let pair = PairFiles { cert: path("tls.crt"), key: path("tls.key") };
        let now = SystemTime::now();
        write(&pair, "old", now - Duration::from_secs(60));
        let (serving, shutdown) = (Arc::new(Serving::default()), Shutdown::default());
        let watched = pair.clone().open(Arc::clone(&serving)).expect("served");
        let watching = tokio::spawn(watched.watch(PACE, shutdown.listen()));
        let served = || serving.pair().expect("served").names.join(" ");
        write(&pair, "new", now + Duration::from_secs(5));
        while serving.errors().get() == 0 {
            assert_eq!(served(), "old", "not refused before its time");
            tokio::time::sleep(PACE).await;
        }
        while served() != "new" {
            tokio::time::sleep(PACE).await;
        }
        shutdown.advance(Stage::Stopping);
        watching.await.expect("ended");
    }
}
