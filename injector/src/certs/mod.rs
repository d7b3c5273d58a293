//! Certificates: the pair that is served, and where it comes from.

pub mod files;
pub mod pair;
pub mod serving;

pub use pair::{CertError, Pair};
pub use serving::Serving;
