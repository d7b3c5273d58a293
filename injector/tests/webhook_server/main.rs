//! The webhook as a process: the real program, real sockets, a real client.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "for tests only"
)]

mod ca_out;
mod certificates;
mod client;
mod config;
mod connections;
mod flags;
mod health;
mod load;
mod logs;
mod memory;
mod requests;
mod server;
mod shutdown;
mod slow;
