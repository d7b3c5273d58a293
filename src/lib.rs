//! Traffic capture for a service mesh sidecar.
//!
//! *Rules are data; everything else interprets them.* The modules are listed in the order in which the data flows; none
//! imports from a later one. All I/O is in `kernel`, which depends only on the model; `apply` translates between it and
//! the plan.
//!
//! ```text
//! cli ─► RawOptions ─┐
//! facts ─────────────┴► config ─► CaptureConfig ─► policy ─► Ruleset (model)
//!                                                     │
//!            render (rules file) ◄── plan ◄ reconcile ◄┴── parse (iptables-save)
//!                                      │
//!                                    apply ─► kernel (processes, netlink, files)
//! ```

// In the order of the data: a module imports from those above it only, which `tests/imports.rs` checks.
mod ordered;

pub mod model;
pub mod nft;
pub mod text;

pub mod kernel;

pub mod exit;
pub mod finding;
pub mod report;

pub mod cli;
pub mod facts;

pub mod config;

pub mod backend;
pub mod logging;
pub mod policy;
pub mod routing;

pub mod live_rules;
pub mod record;

pub mod parse;

pub mod connections;
pub mod reconcile;

pub mod conntrack;
pub mod explain;
pub mod foreign;
pub mod render;
pub mod transition;

pub mod diff;

pub mod plan;

pub mod commits;

pub mod apply;

pub mod format;

pub mod color;

pub mod show_watch;

pub mod interfaces;

pub mod bundle;

pub mod diff_inputs;

pub mod run;
