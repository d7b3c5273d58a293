//! Certificates: the served pair, and where it comes from.

pub mod authority;
mod ca_file;
pub mod files;
mod key;
pub mod pair;
pub mod self_signed;
pub mod serving;

pub use authority::{Bundle, Names, verify};
pub use pair::{CertError, Pair};
pub use self_signed::{Publisher, SelfSigned, SelfSignedError};
pub use serving::Serving;
