//! Traffic capture for a service mesh sidecar.
//!
//! *Rules are data; everything else interprets them.* The modules are listed in the order in which the data
//! flows; none imports from a later one. All I/O is in `kernel`, which depends only on the model; `apply`
//! translates between it and the plan.
//!
//! From options to the text for `iptables-restore`:
//!
//! ```
//! use istio_iptables::facts::Files;
//! use istio_iptables::model::{Family, Network, Table};
//! use istio_iptables::{cli, config, policy, render};
//!
//! // Options as text, with the origin of each.
//! let words = ["istio-iptables", "-b", "80", "-u", "1337"].map(Into::into);
//! let no_file = |_: &std::path::Path| -> std::io::Result<String> { Err(std::io::ErrorKind::NotFound.into()) };
//! let Ok(cli::Outcome::Run(raw)) = cli::parse(words, [], &mut std::io::empty(), &no_file) else { unreachable!() };
//!
//! // Valid values, and with the pod's addresses what is captured.
//! let files = Files { passwd: String::new(), group: String::new(), resolv_conf: Ok(String::new()) };
//! let resolved = config::resolve(&raw, &files).unwrap();
//! let (capture, _notices) = resolved.intent.decide(&Network { addresses: Vec::new(), ipv6: false });
//!
//! // Rules as data, of both families and then of one.
//! let ruleset = policy::ruleset(&capture);
//! let ipv4 = ruleset.resolve(Family::V4);
//! assert!(ipv4.tables[&Table::Nat].rules().any(|rule| rule.statement.matcher.protocol.is_some()));
//!
//! // Text.
//! let text = render::fresh(&ipv4);
//! assert!(text.contains("-A ISTIO_INBOUND -p tcp --dport 80 -j ISTIO_IN_REDIRECT"), "{text}");
//! ```
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

pub mod live_rules;

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

pub mod record;

pub mod parse;

pub mod reconcile;

pub mod connections;
pub mod explain;
pub mod foreign;
pub mod render;

pub mod diff;

pub mod plan;

pub mod apply;

pub mod page;

pub mod commands;

pub mod program;
