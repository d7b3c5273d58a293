//! Rolls back a first run that fails, so that no partial rule set stays in effect.
//!
//! A run that changes rules is not rolled back: after each of its steps the pod is captured, and the next run
//! completes it.

use super::execute::RunProgress;
use super::{Access, Applied, complete, inspect};
use crate::config::{Action, BackendChoice, RunOptions};
use crate::kernel::process::Host;
use crate::model::Backend;
use crate::plan::DesiredState;
use crate::report::Failure;

/// A failed run after its rollback.
pub(super) struct RolledBack {
    /// The failure, with the outcome of the rollback.
    pub(super) failure: Failure,
    /// Whether nothing of the run is left.
    pub(super) is_complete: bool,
}

/// Removes what a failed run has written.
pub(super) fn roll_back(
    host: &impl Host,
    run: &RunOptions,
    backend: Backend,
    failure: Failure,
) -> RolledBack {
    let removed = remove(host, run, backend);
    let is_complete = matches!(removed, Ok(Applied { has_notices: false, .. }));
    let failure = match removed {
        Ok(Applied { is_written: false, .. }) => failure,
        Ok(Applied { has_notices: true, .. }) => {
            failure.detail("rolled back, except for what the warnings name")
        }
        Ok(_) => failure.detail("rolled back: nothing of this run is left"),
        Err(error) => {
            let error = error.lines().collect::<Vec<_>>().join("; ");
            failure.detail(format!("cannot be rolled back, run `istio-iptables cleanup`: {error}"))
        }
    };
    RolledBack { failure, is_complete }
}

fn remove(host: &impl Host, run: &RunOptions, backend: Backend) -> Result<Applied, Failure> {
    log::warn!("the run failed: anything that it has written is removed");
    let backend = BackendChoice::only(backend);
    let cleanup = RunOptions {
        action: Action::Cleanup,
        keep_connections: false,
        verify: false,
        rules_file: None,
        backend,
        ..run.clone()
    };
    let inspection = inspect(host, backend, Access::MayCreateTables)?;
    complete(host, &DesiredState::empty(), &cleanup, inspection, &mut RunProgress::default())
}
