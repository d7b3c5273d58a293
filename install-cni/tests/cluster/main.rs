//! The agent against a real API server, over TLS, with the objects that `sidecar-injector manifests --cni`
//! prints: their arguments, and the rights of their service account.
//!
//! A control plane is made from `KUBEBUILDER_ASSETS` (kube-apiserver and etcd) in a network namespace. All
//! tests are ignored unless asked for (`make cluster`).
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

mod agent;
#[allow(dead_code, reason = "a part is used")]
#[path = "../../../injector/tests/end_to_end/api.rs"]
mod api;
#[allow(dead_code, reason = "a part is used")]
#[path = "../../../injector/tests/end_to_end/control_plane.rs"]
mod control_plane;
#[path = "../common/node.rs"]
mod node;
mod node_object;
mod outage;
mod pod_events;
mod repair;
mod rights;
mod token;

use std::process::ExitCode;
use std::sync::Arc;

use control_plane::Cluster;
use libtest_mimic::{Arguments, Trial};

type Test = (&'static str, fn(&Cluster));

const TESTS: &[Test] = &[
    ("rights::every_right_of_the_manifest_is_used_and_no_other", rights::every_right_is_used_and_no_other),
    ("rights::permission_that_is_missing_is_named", rights::permission_that_is_missing_is_named),
    ("rights::pod_of_the_agent_has_its_token", rights::pod_of_the_agent_has_its_token),
    ("outage::pod_with_the_same_name_is_another_pod", outage::pod_with_the_same_name_is_another_pod),
    ("node_object::taint_is_removed_only_if_asked_for", node_object::taint_is_removed_only_if_asked_for),
    ("node_object::container_runtime_decides_about_a_drop_in_file", node_object::container_runtime_decides),
    ("node_object::missing_rights_on_nodes_are_named", node_object::missing_rights_on_nodes_are_named),
    ("pod_events::changed_rules_are_an_event_and_a_condition", pod_events::changed_rules_are_reported),
    ("pod_events::permissions_that_are_missing_are_named", pod_events::missing_permissions_are_named),
    ("repair::pod_gets_the_label", repair::pod_gets_the_label),
    ("repair::only_the_broken_pod_is_deleted", repair::only_the_broken_pod_is_deleted),
    (
        "repair::pod_that_was_replaced_meanwhile_is_not_changed",
        repair::pod_that_was_replaced_meanwhile_is_not_changed,
    ),
    ("repair::missing_permission_is_named", repair::permission_of_an_action_that_is_missing_is_named),
    (
        "repair::repair_from_outside_needs_no_right_on_pods",
        repair::repair_from_outside_needs_no_right_on_pods,
    ),
    ("token::token_is_read_again_when_it_was_rotated", token::token_is_read_again_when_it_was_rotated),
    // Last: they end the API server of the others.
    ("outage::restart_of_the_api_server_is_survived", outage::restart_of_the_api_server_is_survived),
    (
        "outage::changes_that_etcd_has_compacted_are_listed",
        outage::changes_that_etcd_has_compacted_are_listed,
    ),
];

/// What runs them, shown where they are ignored.
const TARGET: &str = "make cluster";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if arguments.list || !(arguments.include_ignored || arguments.ignored) {
        let listed = TESTS
            .iter()
            .map(|(name, _)| Trial::test(*name, || Ok(())).with_kind(TARGET).with_ignored_flag(true));
        return libtest_mimic::run(&arguments, listed.collect()).exit_code();
    }
    let cluster = match control_plane::of_environment() {
        Ok(cluster) if cluster.is_own() => Arc::new(cluster),
        Ok(_) => {
            eprintln!(
                "NOT CHECKED: the node agent's tests need a control plane of their own: KUBEBUILDER_ASSETS"
            );
            return ExitCode::FAILURE;
        }
        Err(code) => return code,
    };
    let trial = |(name, test): &Test| {
        let (cluster, test) = (Arc::clone(&cluster), *test);
        Trial::test(*name, move || {
            test(&cluster);
            Ok(())
        })
        .with_kind(TARGET)
        .with_ignored_flag(true)
    };
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    let conclusion = libtest_mimic::run(&arguments, TESTS.iter().map(trial).collect());
    cluster.end();
    conclusion.exit_code()
}
