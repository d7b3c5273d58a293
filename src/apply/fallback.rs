//! Fallback to the next backend if the kernel lacks modules for one: `--backend auto` and `iptables`, in a
//! first run.

use std::collections::BTreeMap;

use super::execute::RunProgress;
use super::inspect::inspect_without;
use super::rollback::{RolledBack, roll_back};
use super::{Access, Applied, complete, preconditions};
use crate::backend::{Decision, Refusal};
use crate::config::{Action, BackendChoice, RunOptions};
use crate::kernel::process::Host;
use crate::model::Backend;
use crate::plan::DesiredState;
use crate::report::Failure;

/// Applies the desired state by the first backend of the choice that the kernel has the modules for. Finding
/// that out by trying costs nothing where the first one works.
///
/// # Errors
/// What fails for another reason; or that no backend is left, with the failure of each. A first run is rolled
/// back then, unless it is a plugin's ([`RunOptions::pod_interface`]) and no modules are missing.
pub(super) fn apply(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<Applied, Failure> {
    let mut refused = BTreeMap::new();
    let mut failures = Vec::new();
    loop {
        let inspection = inspect_without(host, run.backend, Access::MayCreateTables, &refused)
            .map_err(|error| with_causes(error, &failures))?;
        let Decision { backend, why } = inspection.decision;
        log::info!("backend {backend}: {why}");
        preconditions::check_state(desired, &inspection.current)?;
        let is_first = run.action == Action::Apply && inspection.current.is_empty();
        // The decision is not made again without the refusals.
        let fallback = (!refused.is_empty())
            .then(|| RunOptions { backend: BackendChoice::only(backend), ..run.clone() });
        let mut written = RunProgress::default();
        let run_now = fallback.as_ref().unwrap_or(run);
        let failure = match complete(host, desired, run_now, inspection, &mut written) {
            Err(failure) => failure,
            Ok(applied) => return Ok(applied),
        };
        let is_kept = run.pod_interface.is_some() && failure.missing_modules.is_empty();
        if !is_first || is_kept {
            return Err(failure);
        }
        let RolledBack { failure, is_complete } = if written.is_begun {
            roll_back(host, run, backend, failure)
        } else {
            RolledBack { failure, is_complete: true }
        };
        if !is_complete || failure.missing_modules.is_empty() {
            return Err(failure);
        }
        if !run.backend.is_open() {
            return Err(with_other_backends(failure));
        }
        refused.insert(backend, refusal(backend, &failure));
        failures.push(failure);
    }
}

fn refusal(backend: Backend, failure: &Failure) -> Refusal {
    let refusal = Refusal { error: failure.what.clone(), modules: failure.missing_modules.clone() };
    log::warn!("backend {backend} cannot be used: {refusal}");
    refusal
}

/// The fix that needs nothing from the node.
fn with_other_backends(mut failure: Failure) -> Failure {
    failure.hint = failure.hint.map(|hint| format!("{hint}, or use --backend auto"));
    failure
}

/// What each backend failed with, below the failure that none is left.
fn with_causes(error: Failure, failures: &[Failure]) -> Failure {
    failures.iter().fold(error, |error, failure| {
        failure
            .details
            .iter()
            .fold(error.detail(failure.what.as_str()), |error, detail| error.detail(detail.as_str()))
    })
}
