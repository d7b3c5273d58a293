//! What runs beside the server: a CA of our own, and everything that is read from a cluster and written to it.

use std::sync::Arc;

use super::live::Live;
use super::live::Surroundings;
use super::options::{CaBundle, Certificates, ConfigFrom, NativeSidecars, ServeOptions};
use super::shutdown::Ending;
use crate::certs::Serving;
use crate::template::Functions;

/// What background tasks are given. They end when `ending` says so.
#[derive(Clone, Debug)]
pub struct Tasks {
    /// What was asked for.
    pub options: Arc<ServeOptions>,
    /// Gets config ([`Live::configure`]) and surroundings ([`Live::surround`]).
    pub live: Arc<Live>,
    /// Gets certificates ([`Serving::replace`]).
    pub serving: Arc<Serving>,
    /// What templates may call, for [`Live::configure`].
    pub functions: Arc<Functions>,
    /// Says when to end.
    pub ending: Ending,
}

/// Starts everything that was asked for. Nothing here waits for a cluster: what is not there yet keeps the webhook
/// from being ready, and is tried again.
///
/// # Errors
///
/// Every problem that trying again does not mend.
pub async fn start(tasks: Tasks) -> Result<(), Vec<String>> {
    let options = &tasks.options;
    tasks.live.surround(Surroundings {
        native_sidecars: options.native_sidecars != NativeSidecars::False,
        ..Surroundings::default()
    });
    let mut problems = Vec::new();
    let mut missing = |flag: &str, asked: bool| {
        if asked {
            problems.push(format!("{flag}: not in this build"));
        }
    };
    missing("--self-signed", matches!(options.certificates, Certificates::SelfSigned { .. }));
    missing("--watch-configmap", matches!(options.config, ConfigFrom::ConfigMap(_)));
    missing("--webhook-config", matches!(&options.ca_bundle, CaBundle::Ours(names) if !names.is_empty()));
    missing("--platform openshift", options.openshift);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
