//! Verification of a certificate with a caBundle, as an API server does it.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::certs::CertError;
use crate::certs::serving_cert::provider;

/// Verifies a chain (leaf first) as an API server does that has `trusted` as caBundle and calls `name` at
/// that time. Both are PEM. A CA outside of its own validity is not trusted, as in Go.
///
/// # Errors
///
/// Why an API server would reject it.
pub fn verify(chain: &str, trusted: &str, name: &str, at: SystemTime) -> Result<(), CertError> {
    let bad = |subject: &str, problem: String| CertError { subject: subject.to_owned(), problem };
    let time = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let chain = certificates("certificate", chain)?;
    let mut roots = RootCertStore::empty();
    for root in certificates("CA certificate", trusted)? {
        let valid = x509_parser::parse_x509_certificate(&root).is_ok_and(|(_, root)| {
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            let validity = root.validity();
            (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&seconds)
        });
        if valid {
            roots.add(root).map_err(|error| bad("CA certificate", error.to_string()))?;
        }
    }
    let provider = Arc::new(provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| bad("CA certificate", format!("none that is valid: {error}")))?;
    let host = ServerName::try_from(name).map_err(|error| bad(name, error.to_string()))?;
    let Some((leaf, others)) = chain.split_first() else {
        return Err(bad("certificate", "no certificate in it; expected PEM".to_owned()));
    };
    verifier
        .verify_server_cert(leaf, others, &host, &[], UnixTime::since_unix_epoch(time))
        .map(|_| ())
        .map_err(|error| bad("certificate", format!("is rejected for {name}: {error}")))
}

fn certificates(subject: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, CertError> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(|error| CertError {
        subject: subject.to_owned(),
        problem: format!("not readable as PEM certificates: {error}"),
    })
}
