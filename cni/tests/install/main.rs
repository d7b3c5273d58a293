//! The node agent: installation, upgrade and removal in directories of a node, with another reader and other
//! writers beside it.
//!
//! Needs root: the test run of ADD makes a network namespace.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests, which fail by panicking"
)]

mod agent;
mod bin_dir;
mod conflicts;
mod conversions;
mod foreign;
mod kill;
mod kills;
mod lists;
mod log_socket;
mod named;
mod node;
mod published;
mod reader;
mod removal;
mod special;
mod status;
mod versions;
