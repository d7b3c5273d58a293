//! One certificate with its key: issued, or parsed.

use std::fmt;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::{BACKDATE, CA_LIFE, LEAF_LIFE};
use crate::certs::{CertError, ServingCert};

/// The names of a certificate: host names and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// The names that a Service has inside its cluster.
    #[must_use]
    pub fn service(name: &str, namespace: &str) -> Self {
        let within = format!("{name}.{namespace}");
        Self(vec![name.to_owned(), format!("{within}.svc.cluster.local"), format!("{within}.svc"), within])
    }

    /// The names, and those of this machine, for a webhook that is called without a Service.
    #[must_use]
    pub fn and_loopback(mut self) -> Self {
        self.0.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        self
    }

    /// Whether a certificate is for all of them.
    pub(super) fn are_in(&self, issued: &IssuedCert) -> bool {
        self.0.iter().all(|name| issued.names.contains(name))
    }

    /// The names.
    #[must_use]
    pub fn all(&self) -> &[String] {
        &self.0
    }
}

/// A certificate with the key that belongs to it, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedCert {
    /// The certificate.
    pub cert: String,
    /// The key of the certificate.
    pub key: String,
    /// When it becomes valid.
    pub not_before: SystemTime,
    /// When it expires.
    pub not_after: SystemTime,
    /// The names of the certificate.
    pub names: Vec<String>,
}

impl fmt::Debug for IssuedCert {
    /// Leaves the key out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, until) = (self.not_before, self.not_after);
        write!(f, "IssuedCert {{ names: {:?}, not_before: {from:?}, not_after: {until:?} }}", self.names)
    }
}

impl IssuedCert {
    /// Reads PEM.
    pub(super) fn parse(sources: (&str, &str), cert: &str, key: &str) -> Result<Self, CertError> {
        let pair = ServingCert::parse(sources.0, cert.as_bytes(), sources.1, key.as_bytes())?;
        let ServingCert { not_before, not_after, names, .. } = pair;
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), not_before, not_after, names })
    }

    /// When it was issued.
    pub(super) fn issued(&self) -> SystemTime {
        self.not_before + BACKDATE
    }

    /// A new CA.
    pub(super) fn authority(now: SystemTime) -> Result<Self, CertError> {
        let mut params = params(&[], now, now + CA_LIFE)?;
        // Two CAs that are trusted side by side need different names.
        let name = format!("sidecar-injector CA {}", params.not_before.date());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::CrlSign, KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(failed)?;
        let cert = params.self_signed(&key).map_err(failed)?;
        Self::parse(("new CA", "key of the new CA"), &cert.pem(), &key.serialize_pem())
    }

    /// A new leaf, which ends no later than its CA.
    pub(super) fn leaf(names: &Names, ca: &Self, now: SystemTime) -> Result<Self, CertError> {
        let mut params = params(names.all(), now, ca.not_after.min(now + LEAF_LIFE))?;
        params.distinguished_name.push(DnType::CommonName, "sidecar-injector");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let signer = KeyPair::from_pem(&ca.key).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(&ca.cert, signer).map_err(failed)?;
        let key = KeyPair::generate().map_err(failed)?;
        let cert = params.signed_by(&key, &issuer).map_err(failed)?;
        Self::parse(("new certificate", "its key"), &cert.pem(), &key.serialize_pem())
    }
}

/// ECDSA P-256 with SHA-256, which is what key pairs are generated for by default: every client has it.
fn params(names: &[String], now: SystemTime, until: SystemTime) -> Result<CertificateParams, CertError> {
    let mut params = CertificateParams::new(names).map_err(|error| CertError {
        subject: names.join(", "),
        problem: format!("cannot be the name of a certificate: {error}"),
    })?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let since_1970 = |time: SystemTime| {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = since_1970(now - BACKDATE);
    params.not_after = since_1970(until);
    Ok(params)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: rcgen::Error) -> CertError {
    CertError { subject: "self-signed certificate".to_owned(), problem: format!("cannot be issued: {error}") }
}
