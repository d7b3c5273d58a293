//! The binary as a process, where things are missing, forbidden, broken or in use by another process.
//!
//! Every test makes a network and a mount namespace of its own (see [`pod`]); that takes root, util-linux,
//! iproute2, both variants of iptables, and nft.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail"
)]
#![allow(clippy::disallowed_methods, reason = "a test starts processes and reads what they left")]

mod addresses;
mod bad_options;
mod contention;
mod detection;
mod diff;
mod diff_bundles;
mod dry_run;
mod failing_tools;
mod file_system;
mod input;
mod killed;
mod limits;
mod logging;
mod missing_modules;
mod missing_tools;
mod namespaces;
mod native_leftovers;
mod page;
mod pod;
mod privileges;
mod processes;
mod rollback;
mod run;
mod sandbox;
mod seccomp;
mod size;
mod typed;
mod untrusted;
mod validation;
