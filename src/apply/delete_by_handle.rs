//! Plans with rules of iptables-nft that only their handles distinguish from identical foreign ones.
//!
//! Deleting a rule by position is unsafe, because another program can shift it and iptables-nft has no lock:
//! only a handle is safe. Rules that a step of the plan writes get their handles from the kernel. So the
//! steps up to that point are executed, and the rest is planned from the live state, as after a run that was
//! stopped there.

use super::execute::{self, RunProgress};
use super::open_connections::Counting;
use super::preconditions::{is_by_position, refuse_first, rules_change};
use super::{Access, Inspection, connection_policy, inspect, steps, with_connections};
use crate::config::{BackendChoice, RunOptions};
use crate::kernel::process::Host;
use crate::model::Backend;
use crate::plan::{DesiredState, Step};
use crate::report::Failure;

/// Parts of one plan: more than phases in which rules are written. Beyond that another program undoes what is
/// written.
const MOST: usize = 8;

/// Executes the steps, in parts where one deletes by place what an earlier one writes.
///
/// # Errors
/// A step fails, or another program changes the rules all the time.
pub(super) fn execute(
    host: &impl Host,
    asked: &DesiredState,
    mut all: Vec<Step>,
    backend: Backend,
    run: &RunOptions,
    locked: bool,
    written: &mut RunProgress,
) -> Result<(), Failure> {
    // While two backends hold rules, the choice could be another one.
    let pinned = RunOptions { backend: BackendChoice::only(backend), ..run.clone() };
    for _ in 0..MOST {
        refuse_first(&all)?;
        let Some(end) = all.iter().position(is_by_position) else {
            return execute::execute(host, &all, backend, run, locked, written);
        };
        all.truncate(end);
        execute::execute(host, &all, backend, run, locked, written)?;
        log::debug!("the rest is planned from what is live now: rules are deleted by handle");
        let Inspection { mut current, decision: _ } = inspect(host, pinned.backend, Access::MayCreateTables)?;
        let policy = connection_policy(run);
        let desired = with_connections(asked, &mut current, policy, Counting::OnceCertain);
        all = steps(&desired, &current);
    }
    Err(rules_change())
}
