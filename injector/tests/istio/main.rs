//! Decisions of Istio's injector, one file for each part. What is expected was found with Istio's own code.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

#[path = "../builtin/mod.rs"]
mod builtin;
mod details;
mod openshift;
mod proxy_config;
mod proxy_configs;
#[path = "../reviews/mod.rs"]
mod reviews;
