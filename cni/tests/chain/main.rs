//! The chain bridge → host-local → portmap → istio-cni in real network namespaces, with Debian's plugins
//! (containernetworking-plugins): what happens to packets, repeated commands, and many pods at once. Needs
//! root.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod add;
#[path = "../common/agent.rs"]
mod agent;
mod agent_facts;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod delivery;
mod interference;
mod packets;
mod removal;
mod runtime;
mod status;
mod user_namespace;
mod versions;
mod worlds;
