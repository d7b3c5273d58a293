//! The capture rules under real packets, on the real kernel.
//!
//! Each test makes its own pod: network namespaces joined by veth pairs, a stub proxy, an app and a world
//! outside, each with its own user. Nothing touches the caller's namespaces. Needs root, iproute2 and both
//! iptables variants; a test that lacks one of them fails and names it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests start tools, read /proc and fail by panicking"
)]

mod lab;

mod ambiguous_rules;
mod app_listeners;
mod backend_agreement;
mod backend_choice;
mod backend_switch;
mod broken_pods;
mod broken_routes;
mod bundle;
mod capture_removal;
mod captured_by_istio;
mod chaos;
mod check;
mod check_changed;
mod cleanup;
mod closed_connections;
mod connection_direction;
mod conntrack_dumps;
mod damaged_rules;
mod dns;
mod dns_changes;
mod dropped_syns;
mod dry_runs;
mod eight_pods;
mod ended_connections;
mod established;
mod expected_answers;
mod explain_bpf_programs;
mod explain_dns;
mod explain_foreign;
mod explain_legacy;
mod explain_link_local;
mod explain_listeners;
mod explain_live;
mod explain_martians;
mod explain_overview;
mod explain_proxy;
mod explain_routing;
mod explain_rules_after;
mod explain_rules_before;
mod explain_runtime;
mod explain_unreadable;
mod explain_untracked_dns;
mod explain_user_namespace;
mod explainer;
mod families;
mod firewalls;
mod foreign_backend_switch;
mod foreign_chains;
mod foreign_comments;
mod foreign_drops;
mod foreign_gotos;
mod foreign_harmless;
mod foreign_header_changes;
mod foreign_mark_changes;
mod foreign_marks;
mod foreign_matches;
mod foreign_preserved;
mod foreign_rules_after;
mod foreign_untracked;
mod foreign_warnings;
mod forwarded;
mod forwarded_capture;
mod guard;
mod guard_access;
mod guard_lockdown;
mod inbound;
mod interface_settings;
mod interfaces;
mod istio_leftovers;
mod kill_switches;
mod killed;
mod kubevirt;
mod lab_selftest;
mod leftovers;
mod list_changes;
mod matrix;
mod missed_packets;
mod native;
mod new_connections;
mod observe;
mod open_connections;
mod option_changes;
mod other_programs;
mod outbound;
mod owner_groups;
mod ownership;
mod page;
mod proxy;
mod published_ports;
mod regressions;
mod repeated_kills;
mod repeated_runs;
mod replaced_entries;
mod report_lines;
mod restricted_container;
mod show;
mod situations;
mod socket_programs;
mod stale_entries;
mod tickets;
mod tproxy;
mod translated_queries;
mod unlisted_chains;
mod unreplied_syns;
mod user_namespace;
mod validation;
mod without_tools;
