//! `--dry-run`: the steps of a run, printed.

use std::path::Path;

use super::connections::Counting;
use super::{
    Access, Inspection, connection_policy, inspect, native, refuse_ambient_mode, require_active_tables,
    steps, tool_error, with_connections,
};
use crate::backend::Decision;
use crate::config::{BackendChoice, RunOptions};
use crate::kernel::process::Host;
use crate::kernel::rules_file;
use crate::model::{Backend, Family, Variant};
use crate::nft;
use crate::plan::{self, CurrentState, DesiredState, Step};
use crate::render;
use crate::report::Failure;
use crate::text::one_line;

/// What a real run would do, printed; nothing is changed.
///
/// # Errors
/// `DRY_RUN_FILE_PATH` cannot be written.
pub fn dry_run(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<String, Failure> {
    let policy = connection_policy(run);
    let (current, desired, notice) = match inspect(host, run.backend, Access::ReadOnly) {
        Ok(Inspection { decision: Decision { backend, why }, mut current }) => {
            let desired = with_connections(desired, &mut current, policy, Counting::Now);
            (current, desired, format!("backend {backend}: {why}"))
        }
        Err(failure) => {
            let notice =
                format!("the live state cannot be read ({}): the plan for an empty namespace", failure.what);
            (empty_state(run.backend), desired.clone(), notice)
        }
    };
    if let Some(path) = &run.dry_run_file {
        keep_dry_run(&desired, current.backend, path)?;
    }
    let mut notices = plan::notices(&desired, &current).all();
    let refused = [require_active_tables(&desired, &current), refuse_ambient_mode(&desired, &current)];
    let refused = refused.into_iter().filter_map(Result::err);
    notices.extend(refused.map(|failure| failure.lines().collect::<Vec<_>>().join("; ")));
    let CurrentState { connections, .. } = &current;
    let passthrough = connections.losing_passthrough(policy).into_iter().collect();
    let notice =
        [vec![notice], connections.outcome(policy, false), connections.losing_marks(), passthrough].concat();
    Ok(describe(&notice, &notices, &steps(&desired, &current), &desired))
}

/// Writes the complete rules of this run to `path`.
fn keep_dry_run(desired: &DesiredState, backend: Backend, path: &Path) -> Result<(), Failure> {
    if backend == Backend::Native {
        return native::show_file(&nft::tables(&desired.rules), path);
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
        BackendChoice::Auto | BackendChoice::Iptables | BackendChoice::IptablesNft => Variant::Nft.into(),
        BackendChoice::Nftables => Backend::Native,
    };
    CurrentState::empty(backend)
}

fn describe(notices: &[String], warnings: &[String], steps: &[Step], desired: &DesiredState) -> String {
    let notices: Vec<_> = notices.iter().map(|notice| one_line(notice)).collect();
    let mut text = format!("# dry run: nothing is changed\n# {}\n", notices.join("\n# "));
    for warning in warnings {
        text += &format!("# warning: {warning}\n");
    }
    if steps.is_empty() {
        text += &format!("# already converged: {}, nothing to do\n", desired.counts());
    }
    for (number, step) in (1..).zip(steps) {
        text += &format!("# step {number} of {}: {step}\n", steps.len());
        if let Step::Restore(restore) = step {
            if restore.by_position && restore.variant == Variant::Nft {
                text += "# what is deleted by its number here, a run deletes by its handle, once the steps before have given it one\n";
            }
            text += &restore.text;
        }
        if let Step::ReplaceNative(replace) = step {
            text += &nft::text(&replace.tables);
        }
    }
    text
}
