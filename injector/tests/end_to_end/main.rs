//! The injector against a real API server: the cluster of `KUBECONFIG`, where `CLUSTER_CONTEXT` names its
//! current context, or a control plane made from `KUBEBUILDER_ASSETS` (kube-apiserver and etcd) in a network
//! namespace.
//!
//! Every test makes namespaces and a revision of its own, and deletes them. Pods are created as dry runs:
//! admission is the same, and nothing is scheduled. All tests are ignored unless asked for (`make cluster`).
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

mod access;
mod api;
mod certificate;
mod config;
mod control_plane;
mod decisions;
mod doctor;
mod helm;
mod installation;
mod later_webhook;
mod manifests;
mod outage;
mod pod_security;
mod policies;
mod reinvocation;
mod replica;
mod rollout;

use std::process::ExitCode;
use std::sync::Arc;

use control_plane::Cluster;
use libtest_mimic::{Arguments, Trial};

type Test = (&'static str, fn(&Cluster));

const TESTS: &[Test] = &[
    ("manifests::every_object_passes_strict_validation", manifests::every_object_passes_strict_validation),
    (
        "manifests::the_validating_policy_denies_image_auto",
        manifests::the_validating_policy_denies_image_auto,
    ),
    ("manifests::invalid_objects_are_rejected", manifests::invalid_objects_are_rejected),
    ("manifests::applying_again_changes_nothing", manifests::applying_again_changes_nothing),
    ("manifests::uninstalling_spares_the_namespace", manifests::uninstalling_spares_the_namespace),
    (
        "manifests::uninstalling_deletes_no_object_of_istiod",
        manifests::uninstalling_deletes_no_object_of_istiod,
    ),
    ("access::the_service_account_may_do_no_more", access::the_service_account_may_do_no_more),
    ("access::every_granted_verb_is_used", access::every_granted_verb_is_used),
    (
        "pod_security::only_pods_for_the_plugin_are_admitted",
        pod_security::only_pods_for_the_plugin_are_admitted,
    ),
    ("policies::injected_pods_violate_what_the_docs_say", policies::injected_pods_violate_what_the_docs_say),
    ("decisions::check_predicts_the_api_server", decisions::check_predicts_the_api_server),
    (
        "certificate::the_ca_bundle_is_written_and_repaired",
        certificate::the_ca_bundle_is_written_and_repaired,
    ),
    ("certificate::rotation_loses_no_pod", certificate::rotation_loses_no_pod),
    ("config::a_change_is_used_and_a_broken_one_is_not", config::a_change_is_used_and_a_broken_one_is_not),
    ("rollout::no_pod_is_lost_in_a_rolling_update", rollout::no_pod_is_lost_in_a_rolling_update),
    ("reinvocation::a_second_call_has_an_empty_patch", reinvocation::a_second_call_has_an_empty_patch),
    ("reinvocation::changes_of_a_later_webhook_are_kept", reinvocation::changes_of_a_later_webhook_are_kept),
    ("doctor::each_breakage_has_its_finding", doctor::each_breakage_has_its_finding),
    ("doctor::the_role_for_doctor_suffices", doctor::the_role_for_doctor_suffices),
    ("helm::helm_3_installs_changes_and_uninstalls", helm::helm_3_installs_changes_and_uninstalls),
    ("helm::helm_4_installs_changes_and_uninstalls", helm::helm_4_installs_changes_and_uninstalls),
    ("helm::helm_4_takes_over_a_release_of_helm_3", helm::helm_4_takes_over_a_release_of_helm_3),
    ("helm::helm_takes_over_existing_objects", helm::helm_takes_over_existing_objects),
    ("helm::gitops_controllers_add_and_drop_webhooks", helm::gitops_controllers_add_and_drop_webhooks),
    // Last: it ends the API server of the others.
    ("outage::an_api_server_restart_is_survived", outage::an_api_server_restart_is_survived),
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
        Ok(cluster) => Arc::new(cluster),
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
