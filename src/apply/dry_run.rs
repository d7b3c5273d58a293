//! `--dry-run`: prints the steps of a run.

use std::path::Path;

use super::open_connections::Counting;
use super::{
    Access, Inspection, connection_policy, execute_native, inspect, preconditions, steps, tool_error,
    with_connections,
};
use crate::backend::Decision;
use crate::config::{BackendChoice, RunOptions};
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::kernel::rules_file;
use crate::kernel::sandbox::is_sandbox;
use crate::model::{Backend, Family, Variant};
use crate::nft;
use crate::plan::{self, CurrentState, DesiredState, Step};
use crate::render;
use crate::report::Failure;
use crate::text::one_line;

/// The plan of a real run.
#[derive(Debug)]
pub struct Plan {
    /// The steps of the plan, for standard output.
    pub text: String,
    /// The precondition that does not hold: a real run fails before its first step.
    pub failure: Option<Failure>,
}

/// Plans a real run and changes nothing. If the live state cannot be read for lack of a privilege or of
/// nftables, the plan is that for an empty namespace, without a failure.
///
/// # Errors
/// `DRY_RUN_FILE_PATH` cannot be written.
pub fn dry_run(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<Plan, Failure> {
    let policy = connection_policy(run);
    let (inspected, unavailable) = inspected(host, run);
    let (current, desired, notice, failure) = match inspected {
        Ok(Inspection { decision: Decision { backend, why }, mut current }) => {
            let desired = with_connections(desired, &mut current, policy, Counting::Now);
            let steps = steps(&desired, &current);
            let failure = preconditions::check(host, run, &desired, &current, &steps).err();
            (current, desired, format!("backend {backend}: {why}"), unavailable.or(failure))
        }
        Err(failure) => {
            let notice =
                format!("the live state cannot be read ({}): the plan for an empty namespace", failure.what);
            let is_expected = matches!(failure.exit, Exit::NoPermission | Exit::Unavailable);
            (empty_state(run.backend), desired.clone(), notice, (!is_expected).then_some(failure))
        }
    };
    if let Some(path) = &run.dry_run_file {
        keep_dry_run(&desired, current.backend, path)?;
    }
    let notices = plan::notices(&desired, &current).all();
    let CurrentState { connections, .. } = &current;
    let passthrough = connections.losing_passthrough(policy).into_iter().collect();
    let refused = failure
        .iter()
        .map(|failure| format!("a run fails: {}", failure.lines().collect::<Vec<_>>().join("; ")));
    let notice = [
        vec![notice],
        refused.collect(),
        connections.outcome(policy, false),
        connections.losing_marks(),
        passthrough,
    ]
    .concat();
    let last = current.end_of_lockdown();
    Ok(Plan {
        text: describe(&notice, &notices, (&steps(&desired, &current), last.as_deref()), &desired),
        failure,
    })
}

/// The live state, and why a run has no backend: reading needs no tool.
fn inspected(host: &impl Host, run: &RunOptions) -> (Result<Inspection, Failure>, Option<Failure>) {
    match inspect(host, run.backend, Access::DryRun) {
        Err(failure) if failure.exit == Exit::Unavailable => {
            match inspect(host, run.backend, Access::Question) {
                Ok(inspection) => (Ok(inspection), Some(failure)),
                Err(_) => (Err(failure), None),
            }
        }
        inspected => (inspected, None),
    }
}

/// Writes the complete rules of this run to `path`.
fn keep_dry_run(desired: &DesiredState, backend: Backend, path: &Path) -> Result<(), Failure> {
    if backend == Backend::Native {
        return execute_native::show_file(&nft::tables(&desired.rules), path);
    }
    for family in Family::ALL {
        let rules = desired.rules.get(&family).filter(|rules| rules.count() > 0);
        // A run without IPv6 rules has no second file; an existing one belongs to another run or program.
        if rules.is_some() || family == Family::V4 {
            let text = rules.map(render::fresh).unwrap_or_default();
            let path = rules_file::path_of(path, family);
            rules_file::show(&path, &text)
                .map_err(|error| tool_error::cannot_write("DRY_RUN_FILE_PATH", &path, &error))?;
        }
    }
    Ok(())
}

fn empty_state(choice: BackendChoice) -> CurrentState {
    let backend = match choice {
        BackendChoice::IptablesLegacy => Variant::Legacy.into(),
        BackendChoice::Auto | BackendChoice::Iptables if is_sandbox() => Variant::Legacy.into(),
        BackendChoice::Auto | BackendChoice::Iptables | BackendChoice::IptablesNft => Variant::Nft.into(),
        BackendChoice::Nftables => Backend::Native,
    };
    CurrentState::empty(backend)
}

fn describe(
    notices: &[String],
    warnings: &[String],
    (steps, last): (&[Step], Option<&str>),
    desired: &DesiredState,
) -> String {
    let notices: Vec<_> = notices.iter().map(|notice| one_line(notice)).collect();
    let mut text = format!("# dry run: nothing is changed\n# {}\n", notices.join("\n# "));
    for warning in warnings {
        text += &format!("# warning: {warning}\n");
    }
    let number_of_steps = steps.len() + usize::from(last.is_some());
    if number_of_steps == 0 {
        text += &format!("# already converged: {}, nothing to do\n", desired.counts());
    }
    for (number, step) in (1..).zip(steps) {
        text += &format!("# step {number} of {number_of_steps}: {step}\n");
        if let Step::Restore(restore) = step {
            if restore.by_position() && restore.variant == Variant::Nft {
                text += "# a run deletes by handle what is deleted by number here, once the steps before have given it a handle\n";
            }
            text += &restore.text();
        }
        if let Step::ReplaceNative(replace) = step {
            text += &nft::text(&replace.tables);
        }
    }
    if let Some(last) = last {
        text += &format!("# step {number_of_steps} of {number_of_steps}: {last}\n");
    }
    text
}
