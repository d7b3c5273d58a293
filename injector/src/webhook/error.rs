//! Why the webhook does not start.

use std::fmt;
use std::io;

use super::options::Listen;
use crate::certs::{CertError, SelfSignedError};
use crate::config::ConfigError;

/// Why the webhook does not start.
#[derive(Debug)]
pub enum ServeError {
    /// A file of a flag.
    Unreadable {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        file: String,
        /// What the system says.
        error: io::Error,
    },
    /// Config, values or mesh config.
    Config(ConfigError),
    /// Certificate or key.
    Certificate(CertError),
    /// The self-signed certificate.
    SelfSigned(SelfSignedError),
    /// An address.
    Bind {
        /// The flag that names it.
        flag: &'static str,
        /// The address.
        listen: Listen,
        /// What the system says.
        error: io::Error,
    },
    /// The cluster, or the way to it.
    Cluster(String),
    /// The system, or a library, refuses something that otherwise works.
    Runtime(String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { flag, file, error } => write!(f, "{flag} {file}: {error}"),
            Self::Config(error) => error.fmt(f),
            Self::Certificate(error) => error.fmt(f),
            Self::SelfSigned(error) => error.fmt(f),
            Self::Bind { flag, listen, error } => {
                write!(f, "{flag}: cannot listen on {}: {error}", listen.address)
            }
            Self::Cluster(error) | Self::Runtime(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for ServeError {}
