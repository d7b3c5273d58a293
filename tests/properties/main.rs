//! Properties of rules and changes, over any configuration, without a kernel.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at what it is about")]

mod backend_switch;
mod compared;
mod configs;
mod convergence;
mod first_capture;
mod foreign;
mod from_rules;
mod native;
mod rules;
mod tables;
