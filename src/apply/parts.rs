//! Plans with rules of iptables-nft that only their handles distinguish from identical foreign ones.
//!
//! Another program can shift a rule that is deleted by its place, and iptables-nft has no lock: only a handle is safe. The rules
//! that a step of the plan writes have none before. So the steps up to there are executed, and the rest is planned from
//! what is live then: the state of a run that was stopped there, from which any run continues.

use std::collections::BTreeSet;

use super::connections::Counting;
use super::execute::{self, Written};
use super::{Access, Inspection, connection_policy, inspect, steps, with_connections};
use crate::config::{BackendChoice, RunOptions};
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::model::{Backend, Variant};
use crate::plan::{DesiredState, Step};
use crate::report::Failure;

/// Parts of one plan: more than phases in which rules are written. Beyond that another program undoes what is written.
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
    written: &mut Written,
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
    Err(changing())
}

/// Makes sure that what is deleted by its place is written before by the same plan: then it gets a handle.
///
/// # Errors
/// It is live already, and has no handle since the rules changed whenever they were read.
pub(super) fn refuse_first(all: &[Step]) -> Result<(), Failure> {
    let mut written = BTreeSet::new();
    for step in all {
        let Step::Restore(restore) = step else { continue };
        if is_by_position(step) && !written.contains(&(restore.variant, restore.family)) {
            return Err(changing());
        }
        written.insert((restore.variant, restore.family));
    }
    Ok(())
}

/// Whether a rule of iptables-nft is deleted by its place.
fn is_by_position(step: &Step) -> bool {
    matches!(step, Step::Restore(restore) if restore.by_position && restore.variant == Variant::Nft)
}

fn changing() -> Failure {
    let what = "another program changes the rules all the time: ours cannot be distinguished from identical foreign ones";
    Failure::new(Exit::Busy, what).hint("find it (`nft monitor`), or run again")
}
