//! Errors at the start of the webhook.

use std::io;

use super::options::Listen;
use crate::certs::{CertError, SelfSignedError};
use crate::config::ConfigError;

/// Why the webhook does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// A file of a flag cannot be opened.
    #[error("{flag} {file}: {error}")]
    Unreadable { flag: &'static str, file: String, error: io::Error },
    /// Config, values or mesh config.
    #[error("{0}")]
    Config(ConfigError),
    /// Certificate or key.
    #[error("{0}")]
    Certificate(CertError),
    /// The self-signed certificate.
    #[error("{0}")]
    SelfSigned(SelfSignedError),
    /// An address.
    #[error("{flag}: cannot listen on {}: {error}", listen.address)]
    Bind { flag: &'static str, listen: Listen, error: io::Error },
    /// The cluster, or the way to it.
    #[error("{0}")]
    Cluster(String),
    /// The system, or a library, refuses something that otherwise works.
    #[error("{0}")]
    Runtime(String),
}
