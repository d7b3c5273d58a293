//! TLS of the admission port.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::version::{TLS12, TLS13};
use tokio_rustls::TlsAcceptor;

use crate::certs::Serving;
use crate::certs::pair::provider;

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, with the pair that is served at the moment of a handshake.
///
/// # Errors
///
/// When the provider of cryptography lacks a version of the protocol, which a test excludes.
pub fn acceptor(serving: Arc<Serving>) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
