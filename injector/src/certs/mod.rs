//! Certificates: the served pair, and where it comes from.

mod authority;
mod ca_file;
pub(crate) mod files;
mod resolver;
pub(crate) mod self_signed;
pub mod serving_cert;

pub use authority::{Bundle, Names, verify};
pub use resolver::CertResolver;
pub use self_signed::{Publisher, SelfSigned, SelfSignedError};
pub use serving_cert::{CertError, ServingCert};
