//! The capture rules under real packets, on the real kernel.
//!
//! Each test makes its own pod: network namespaces joined by veth pairs, a stub proxy, an app and a world outside, each
//! with its own user. Nothing touches the caller's namespaces. Needs root, iproute2 and both iptables variants; a test
//! that lacks one of them fails and names it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests start tools, read /proc and fail by panicking"
)]

mod lab;

mod agreement;
mod bundle;
mod change;
mod chaos;
mod check;
mod check_changed;
mod choice;
mod cleanup;
mod closed_connections;
mod confined;
mod conntrack_walks;
mod dns;
mod dns_changes;
mod dropped_syns;
mod dry_runs;
mod established;
mod explain_arrival;
mod explain_before;
mod explain_beside;
mod explain_bpf_programs;
mod explain_dns;
mod explain_later;
mod explain_legacy;
mod explain_link_local;
mod explain_listeners;
mod explain_live;
mod explain_overview;
mod explain_routing;
mod explain_runtime;
mod explain_unread;
mod explain_untracked_dns;
mod explain_user_namespace;
mod explained;
mod families;
mod foreign;
mod foreign_chains;
mod foreign_mark_changes;
mod foreign_marks;
mod foreign_matches;
mod foreign_moves;
mod foreign_on_the_way;
mod foreign_untracked;
mod foreign_warnings;
mod forwarded;
mod held;
mod inbound;
mod interface_settings;
mod interfaces;
mod interrupted;
mod istio_leftovers;
mod killed;
mod kubevirt;
mod lab_selftest;
mod leaving;
mod left_entries;
mod leftovers;
mod matrix;
mod missed_packets;
mod moves;
mod native;
mod new_connections;
mod opening_side;
mod other_programs;
mod outbound;
mod owners;
mod ownership;
mod proxy;
mod regressions;
mod replaced_entries;
mod show;
mod situations;
mod socket_programs;
mod state;
mod tickets;
mod tproxy;
mod unlisted_chains;
mod unnamed_rules;
mod unreplied;
mod user_namespace;
mod validation;
