//! The admission webhook: a review goes in, a patch comes out.
//!
//! `admit` answers one request and performs no I/O; `live` holds what answers depend on and is swapped while serving.

pub mod admit;
pub mod live;
