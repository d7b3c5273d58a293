//! A build without a client of the API server.

use super::super::progress::Progress;
use super::Tasks;
use crate::webhook::options::{CaBundle, ConfigFrom, ServeOptions};

/// The flag that needs a cluster.
pub(super) fn asked_for(options: &ServeOptions) -> Option<&'static str> {
    let flags = [
        ("--watch-configmap", matches!(options.config, ConfigFrom::ConfigMap(_))),
        ("--webhook-config", matches!(&options.ca_bundle, CaBundle::Ours(names) if !names.is_empty())),
        ("--platform openshift", options.openshift),
        ("--kubeconfig", options.kubeconfig.is_some()),
    ];
    flags.into_iter().find(|(_, asked)| *asked).map(|(flag, _)| flag)
}

#[expect(clippy::unused_async, reason = "the other build's does wait")]
pub(super) async fn start(_: Tasks, why: &'static str) -> Result<Progress, Vec<String>> {
    Err(vec![format!(
        "{why} needs a client of the API server, which this build does not have (feature cluster)"
    )])
}
