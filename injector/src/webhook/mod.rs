//! The admission webhook: a review goes in, a patch comes out.
//!
//! `admit` answers one request and performs no I/O; `live` holds what answers depend on and is swapped while serving.

pub mod admit;
pub mod cache;
pub mod canonical;
pub mod fault;
pub mod live;
pub mod patch;
pub mod refusal;
pub mod review;
pub mod said;
pub mod variables;
pub mod verdict;

/// The largest body of a request, in bytes; etcd's objects are smaller.
pub const LARGEST_BODY: usize = 6 << 20;
