//! What is read from a cluster and written to it, against an API server in memory.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "for tests only"
)]

mod bundles;
mod certificate;
mod commands;
mod config;
mod connection;
mod doctor;
mod fake;
mod owners;
mod permissions;
mod program;
mod proxy;
mod proxy_configs;
mod replica;
mod state;
