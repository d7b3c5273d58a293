//! A certificate and its key.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// The keys that the crypto provider supports.
const ACCEPTED_KEYS: &str =
    "RSA of 2048, 3072 or 4096 bits with exponent 65537, ECDSA on P-256 or P-384, or Ed25519";

/// Why a certificate and its key are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {problem}")]
pub struct CertError {
    /// The file, the key of a Secret, or a description.
    pub subject: String,
    /// What was found and what is accepted.
    pub problem: String,
}

/// A certificate chain with its key; a value that exists is valid.
#[derive(Clone, Debug)]
pub struct ServingCert {
    /// What rustls serves.
    pub certified: Arc<CertifiedKey>,
    /// When the first certificate of the chain becomes valid.
    pub not_before: SystemTime,
    /// When it expires.
    pub not_after: SystemTime,
    /// The subject alternative names of the certificate, as text.
    pub names: Vec<String>,
}

impl ServingCert {
    /// Reads PEM: the chain, leaf first, and the leaf's key.
    ///
    /// # Errors
    ///
    /// What is missing, cannot be read, or does not belong together; `cert_source` and `key_source` name the
    /// two.
    pub fn parse(cert_source: &str, cert: &[u8], key_source: &str, key: &[u8]) -> Result<Self, CertError> {
        let bad_cert = |problem: String| CertError { subject: cert_source.to_owned(), problem };
        let bad_key = |problem: String| CertError { subject: key_source.to_owned(), problem };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert)
            .collect::<Result<_, _>>()
            .map_err(|error| bad_cert(format!("not readable as PEM certificates: {error}")))?;
        let Some(leaf) = chain.first() else {
            return Err(bad_cert(
                "no certificate in it; expected PEM, CERTIFICATE blocks, the leaf first".to_owned(),
            ));
        };
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf)
            .map_err(|error| bad_cert(format!("the first certificate cannot be read: {error}")))?;
        let names = names(&parsed);
        let validity = parsed.validity();
        let (not_before, not_after) =
            (instant(validity.not_before.timestamp()), instant(validity.not_after.timestamp()));
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| bad_key(unreadable_key(key, &error.to_string())))?;
        let provider = provider();
        if provider.key_provider.load_private_key(key.clone_key()).is_err() {
            return Err(bad_key(format!("its type or size is not supported: expected {ACCEPTED_KEYS}")));
        }
        let certified = CertifiedKey::from_der(chain.clone(), key, &provider)
            .map_err(|error| bad_key(format!("the key cannot be used with {cert_source}: {error}")))?;
        Ok(Self { certified: Arc::new(certified), not_before, not_after, names })
    }
}

/// The error of a text that is not a PEM key; `problem` is that of the parser.
fn unreadable_key(pem: &[u8], problem: &str) -> String {
    let text = String::from_utf8_lossy(pem);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return format!(
            "the key is encrypted, expected one without a passphrase (openssl pkey -in encrypted.key -out tls.key): {ACCEPTED_KEYS}"
        );
    }
    format!("expected a private key in PEM (PKCS#8, PKCS#1 or SEC1), {ACCEPTED_KEYS}: {problem}")
}

/// The crypto provider.
#[must_use]
pub fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Seconds since 1970 as a time; what lies before counts as 1970.
pub(crate) fn instant(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

pub(crate) fn names(certificate: &x509_parser::certificate::X509Certificate<'_>) -> Vec<String> {
    use x509_parser::extensions::GeneralName;
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(v4) => Some(std::net::Ipv4Addr::from(v4).to_string()),
            Err(_) => <[u8; 16]>::try_from(*bytes).ok().map(|v6| std::net::Ipv6Addr::from(v6).to_string()),
        },
        GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::Invalid(..)
        | GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::URI(_)
        | GeneralName::X400Address(_) => None, // no host names
    };
    extension.value.general_names.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn invalid_key_is_rejected_with_what_is_accepted() {
        // PKCS#8 of the right form, with a curve for which no signer exists (P-521).
        const UNSUPPORTED: &str =
            "-----BEGIN PRIVATE KEY-----\nMBkCAQAwEAYHKoZIzj0CAQYFK4EEACMEAgAA\n-----END PRIVATE KEY-----\n";
        let own = KeyPair::generate().unwrap();
        let cert =
            CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&own).unwrap().pem();
        let parse = |key: &str| ServingCert::parse("tls.crt", cert.as_bytes(), "tls.key", key.as_bytes());
        assert!(parse(&own.serialize_pem()).is_ok());
        let encrypted = "the key is encrypted, expected one without";
        for (key, problem) in [
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", encrypted),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
                encrypted,
            ),
            ("nothing", "expected a private key in PEM"),
            (UNSUPPORTED, "its type or size is not supported: expected RSA of 2048"),
        ] {
            let message = parse(key).unwrap_err().to_string();
            assert!(message.starts_with(&format!("tls.key: {problem}")), "{message}");
        }
    }
}
