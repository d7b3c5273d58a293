//! The injector: what a pod becomes, the commands, the webhook. One program, since linking one takes longer
//! than most of its tests.
//!
//! `conformance` is a program of its own, since its cases come from files; `end_to_end`, too, which needs an
//! API server.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

mod builtin;
mod canary;
mod capture;
mod cli;
mod cluster;
mod cni;
mod completions;
mod conflicts;
mod doctor;
mod fault_origins;
mod fixed_point;
mod hostile;
mod inject;
mod istio;
mod manifests;
mod other_webhooks;
mod overlay_cache;
mod pod_security;
mod proxy_user;
mod refusals;
mod reviews;
mod root_user;
mod template_functions;
mod uninject;
mod validity;
mod webhook_review;
mod webhook_review_properties;
mod webhook_server;
