//! The admission webhook: takes an `AdmissionReview` and returns a JSON patch.
//!
//! `admission` reviews one request without I/O; `config_store` holds the config and the state that reviews
//! depend on, and is replaced while serving (hot reload). `server` is the admission port, `monitoring` the
//! other one; `serve` combines them, from start to shutdown.

pub mod admission;
mod background;
mod config_files;
pub mod config_store;
mod denial;
pub(crate) mod error;
mod health;
pub(crate) mod log_queue;
mod metrics;
mod monitoring;
mod nullable;
pub(crate) mod options;
mod patch;
pub mod pod_object;
mod probe;
mod process_metrics;
mod reasons;
pub mod request_error;
mod review;
pub(crate) mod serve;
mod server;
mod shutdown;
mod truncate;
pub(crate) mod url;
mod verdict;
