//! The guard of all captured pods of a node, with the plugin, the agent and real network namespaces. Needs
//! root, nftables and both variants of iptables.
//!
//! `GUARD_PODS=100 GUARD_CHANGES=1000` makes the soak test as large as the figures of docs/performance.md;
//! `ISTIO_CNI_PROGRAM` names the program, as it ships; `GUARD_WRITE` the page for the figures (`make
//! bench-guard`).
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod audit;
#[path = "../common/mod.rs"]
mod common;
mod escaped;
mod lab;
mod many;
mod one;
mod plot;
mod soak;
mod uncaptured;
