//! A probe of our own admission port over TLS: the only proof that it responds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::server::READY_PATH;
use crate::certs::CertResolver;
use crate::certs::serving_cert::provider;

/// Timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Probes the admission port.
#[derive(Debug)]
pub(super) struct Probe {
    address: SocketAddr,
    serving: Arc<CertResolver>,
}

impl Probe {
    /// For the port that is listened on at this address.
    pub(super) fn new(listening: SocketAddr, serving: Arc<CertResolver>) -> Self {
        // A socket for all addresses of both families listens on this one too.
        let unspecified = listening.ip().is_unspecified();
        let ip = if unspecified { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listening.ip() };
        Self { address: SocketAddr::new(ip, listening.port()), serving }
    }

    /// Connects over TLS and expects the certificate that is served.
    /// Errors: where it failed.
    pub(super) async fn call(&self) -> Result<(), String> {
        match tokio::time::timeout(PROBE_TIMEOUT, self.try_call()).await {
            Ok(result) => result.map_err(|error| format!("{}: {error}", self.address)),
            Err(_) => Err(format!("{}: no response within {} s", self.address, PROBE_TIMEOUT.as_secs())),
        }
    }

    async fn try_call(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut tcp = TcpStream::connect(self.address).await;
        if tcp.is_err() && self.address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
            // The socket may be for IPv6 only.
            tcp = TcpStream::connect((Ipv6Addr::LOCALHOST, self.address.port())).await;
        }
        let provider = Arc::new(provider());
        let verifier =
            PinnedCertificate { serving: Arc::clone(&self.serving), provider: Arc::clone(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let name = ServerName::IpAddress(self.address.ip().into());
        let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp?).await?;
        let request = format!("GET {READY_PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        tls.write_all(request.as_bytes()).await?;
        let mut head = [0; 12];
        tls.read_exact(&mut head).await?;
        if &head == b"HTTP/1.1 200" {
            Ok(())
        } else {
            Err(format!("expected status 200, found {:?}", String::from_utf8_lossy(&head)).into())
        }
    }
}

/// Accepts the certificate that we serve, and no other.
#[derive(Debug)]
struct PinnedCertificate {
    serving: Arc<CertResolver>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        seen: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ours = self.serving.pair();
        if ours.is_some_and(|pair| pair.certified.cert.first() == Some(seen)) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("unexpected certificate: not the one that is served".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
