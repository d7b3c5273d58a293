//! The Node object: whether the runtime loads drop-in files, and the taint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::events::RESYNC;
use super::options::{Install, InstallMode};
use super::pods::{self, Pods};
use super::{entry, runtime};

/// The time for which the version of the runtime is cached.
const RUNTIME: Duration = Duration::from_secs(600);

/// The Node object as it was last read.
pub(super) struct NodeObject {
    pods: Option<Arc<dyn Pods>>,
    /// The runtime, or why it is not known; and when that was asked.
    runtime: Option<(Instant, Result<String, String>)>,
    untainted: bool,
    /// The number of times that the taint has waited for the pods to be known.
    waits: u32,
}

impl NodeObject {
    /// Without `pods` there is none.
    pub(super) fn new(pods: Option<Arc<dyn Pods>>) -> Self {
        Self { pods, runtime: None, untainted: false, waits: 0 }
    }

    /// The taint may be there again: pods cannot start.
    pub(super) fn untaint_again(&mut self) {
        self.untainted = false;
    }

    /// A drop-in file where the runtime is known to load it: any runtime uses a list.
    pub(super) fn mode(&mut self, options: &Install) -> InstallMode {
        let Some(pods) = self.pods.as_ref().filter(|_| options.drop_in_auto) else {
            return options.mode;
        };
        if self
            .runtime
            .as_ref()
            .is_none_or(|(asked, found)| asked.elapsed() >= if found.is_ok() { RUNTIME } else { RESYNC })
        {
            let found = pods.container_runtime();
            if self.runtime.as_ref().is_none_or(|(_, before)| *before != found) {
                match &found {
                    Ok(runtime) => {
                        log::info!(runtime, loads_drop_in_files:? = runtime::loads_drop_in_files(runtime); "container runtime of the node")
                    }
                    Err(problem) => log::info!(
                        "--drop-in=auto: the list is edited, as the container runtime is not known: {problem}"
                    ),
                }
            }
            self.runtime = Some((Instant::now(), found));
        }
        let runtime = self.runtime.as_ref().and_then(|(_, found)| found.as_deref().ok());
        let loads = runtime.and_then(runtime::loads_drop_in_files) == Some(true);
        // A configuration that is no list has no drop-in files.
        if loads && entry::drop_in(&options.dirs).is_ok() { InstallMode::DropIn } else { InstallMode::List }
    }

    /// Removes the taint of the node once pods can start. Returns how long to wait for the next attempt.
    pub(super) fn untaint(&mut self) -> Duration {
        let Some(pods) = self.pods.as_ref().filter(|_| !self.untainted) else { return RESYNC };
        if pods.problem().is_some() {
            // Soon, as pods wait for the node; not often, as each time everything is looked at.
            self.waits += 1;
            return RESYNC.min(Duration::from_secs(1 << self.waits.min(5)));
        }
        match pods.remove_taint() {
            Ok(removed) => {
                self.untainted = true;
                if removed {
                    log::info!(taint = pods::TAINT; "taint of the node removed");
                }
            }
            Err(problem) => {
                log::warn!(taint = pods::TAINT, retry_s = RESYNC.as_secs(); "taint of the node not removed: {problem}")
            }
        }
        RESYNC
    }
}
