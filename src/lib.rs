//! Traffic capture for a service mesh sidecar.
//!
//! One idea carries the crate: *rules are data, everything else is an interpreter*. The modules are listed in the
//! order in which the data flows; none of them reaches back.
//!
//! ```text
//! cli ─► RawOptions ─┐
//! facts ─────────────┴► config ─► CaptureConfig ─► policy ─► Ruleset (model)
//!                                                     │
//!            render (rules file) ◄── plan ◄── diff ◄──┴── parse (iptables-save)
//!                                      │
//!                                    apply ─► kernel (processes, netlink, files)
//! ```

#![deny(clippy::self_named_module_files, reason = "one layout for modules: `x/mod.rs`")]

pub mod apply;
pub mod backend;
pub mod cli;
pub mod commits;
pub mod config;
pub mod connections;
pub mod conntrack;
pub mod diff;
pub mod exit;
pub mod facts;
pub mod foreign;
pub mod kernel;
pub mod logging;
pub mod model;
pub mod parse;
pub mod plan;
pub mod policy;
pub mod record;
pub mod render;
pub mod report;
pub mod routing;
pub mod run;
pub mod text;
pub mod transition;
