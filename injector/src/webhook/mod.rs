//! The admission webhook: a review goes in, a patch comes out.
//!
//! `admit` answers one request and performs no I/O; `live` holds what answers depend on and is swapped while serving.
//! `server` is the admission port, `monitoring` the other one; `serve` puts them together, from options to the end.

pub mod admit;
pub mod background;
pub mod bounds;
pub mod cache;
pub mod canonical;
pub mod config_files;
pub mod error;
pub mod fault;
pub mod health;
pub mod key;
pub mod live;
pub mod log_queue;
pub mod metrics;
pub mod monitoring;
mod nullable;
pub mod options;
pub mod patch;
pub mod probe;
pub mod progress;
pub mod refusal;
pub mod review;
pub mod said;
pub mod serve;
pub mod server;
pub mod shutdown;
pub mod signals;
pub mod variables;
pub mod verdict;
pub mod watch;

/// The largest body of a request, in bytes; etcd's objects are smaller.
pub const LARGEST_BODY: usize = 6 << 20;
