//! One run, in the order of its stages.

pub mod guard;
mod namespace;
mod older;
mod questions;
mod validation;

use std::time::Duration;

use crate::apply;
use crate::apply::differences::Differences;
use crate::color;
use crate::config::{Action, BackendChoice, CaptureConfig, Color, Intent, Resolved, RunOptions};
use crate::diff::Conclusion;
use crate::diff_inputs;
use crate::exit::Exit;
use crate::explain::PodReport;
use crate::kernel::process::Host;
use crate::kernel::{recording, run_lock, terminal};
use crate::model::{Backend, Family};
use crate::plan::DesiredState;
use crate::policy;
use crate::report::Failure;
use crate::routing;
use crate::text::wrapped;
use namespace::{enter, network, require_intention, require_net_admin, require_other_namespace};
use questions::{explain, report};
use validation::validate;

pub use older::{older_connections, reset_connections};

/// The time for which a run waits for another one in the same namespace.
const WAIT_FOR_OTHER_RUN: Duration = Duration::from_secs(30);

/// Executes a run. Returns the text for standard output, with the exit code.
///
/// # Errors
/// The first stage that fails.
pub fn run(host: &impl Host, resolved: Resolved) -> Result<(String, Exit), Failure> {
    let Resolved {
        run,
        log: _,
        query,
        question,
        diff,
        guard,
        color,
        is_bare,
        wide,
        intent,
        warnings,
        given,
        scope,
    } = resolved;
    let has_colors = match color {
        Color::Always => true,
        Color::Auto => terminal::is_terminal(),
        Color::Never => false,
    };
    let width = terminal::width().filter(|_| !wide);
    let paint = |report: String| {
        let painted = if has_colors { color::paint(&report) } else { report };
        if let Some(width) = width { wrapped(&painted, width) } else { painted }
    };
    for warning in &warnings {
        log::warn!("{warning}");
    }
    if let Some(query) = query {
        return explain(host, &query, intent, &run, &given).map(|report| (paint(report), Exit::Done));
    }
    if let Some(question) = question {
        return report(host, question, intent, &run, scope, &paint)
            .map(|(report, exit)| (paint(report), exit));
    }
    if let Some(options) = guard {
        return guard::guard(host, options, intent, &run, scope).map(|exit| (String::new(), exit));
    }
    if let Some(query) = diff {
        enter(&run)?;
        let known = diff_inputs::DiffContext { intent, run, network };
        return diff_inputs::diff(host, &query, &known).map(|(report, exit)| (paint(report), exit));
    }
    if is_bare {
        require_intention()?;
    }
    if !given.is_empty() {
        let options: Vec<String> = given.iter().map(ToString::to_string).collect();
        log::info!("options: {}", options.join(" "));
    }
    change(host, intent, &run)
}

/// The report of `explain --live` about all traffic, as values. Nothing is changed.
///
/// # Errors
/// The options ask for something else, or the live state cannot be read.
pub fn pod_report(host: &impl Host, resolved: Resolved) -> Result<PodReport, Failure> {
    let Resolved { run, query, intent, warnings, given, .. } = resolved;
    for warning in &warnings {
        log::warn!("{warning}");
    }
    if !query.is_some_and(|query| query.live && query.destination.is_none()) {
        let what = "a page is about all traffic of a live pod";
        return Err(Failure::new(Exit::Usage, what)
            .hint("istio-iptables explain --live -o html, with --pid or --bundle, without --to"));
    }
    questions::pod_report(host, intent, &run, &given)
}

/// Changes the rules, or prints how they would be changed.
fn change(host: &impl Host, intent: Intent, run: &RunOptions) -> Result<(String, Exit), Failure> {
    if run.dry_run && !run.skip_rule_apply {
        let (_, desired) = prepare(intent, run)?;
        let apply::Plan { text, failure } = apply::dry_run(host, &desired, run)?;
        // With a failure, the plan is printed too.
        let Some(failure) = failure else { return Ok((text, Exit::Done)) };
        log::error!("{failure}");
        return Ok((text, failure.exit));
    }
    let (config, desired) = if run.skip_rule_apply {
        log::info!("rules are not changed (--skip-rule-apply)");
        prepare(intent, run)?
    } else {
        let AppliedState { config, desired, backend: _ } = write(host, intent, run)?;
        (config, desired)
    };
    if let Some(validation) = run.validation.filter(|_| !run.dry_run) {
        validate(host, &config, &desired, run, validation)?;
    }
    Ok((String::new(), Exit::Done))
}

/// What a run has written.
#[derive(Clone, Debug)]
pub struct AppliedState {
    config: CaptureConfig,
    /// The rules, the address and the routes.
    pub desired: DesiredState,
    /// What holds the rules.
    pub backend: Backend,
}

/// Writes the rules of the options into this thread's network namespace, or into the one that they name.
///
/// # Errors
/// The first stage that fails.
pub fn write(host: &impl Host, intent: Intent, run: &RunOptions) -> Result<AppliedState, Failure> {
    require_net_admin()?;
    let (config, desired) = prepare(intent, run)?;
    let _lock = exclusive()?;
    let backend = apply::apply(host, &desired, run)?;
    Ok(AppliedState { config, desired, backend })
}

/// Enters the network namespace, and decides on the rules there.
fn prepare(intent: Intent, run: &RunOptions) -> Result<(CaptureConfig, DesiredState), Failure> {
    if run.action == Action::Apply && !run.skip_rule_apply {
        require_other_namespace(run)?;
    }
    enter(run)?;
    let config = decide(intent, run)?;
    if run.action == Action::Apply {
        warn_of_name_servers(&config);
    }
    let desired = desired(&config, run.action, run.force_apply);
    Ok((config, desired))
}

/// Compares the live rules of this thread's network namespace with what the options ask for, which is returned, too. Nothing is
/// changed.
///
/// # Errors
/// They cannot be read.
pub fn check(host: &impl Host, resolved: Resolved) -> Result<(Differences, DesiredState), Failure> {
    let Resolved { run, intent, .. } = resolved;
    require_net_admin()?;
    enter(&run)?;
    let (config, _) = intent.decide(&network()?);
    let desired = desired(&config, Action::Apply, false);
    Ok((apply::differences::differences(host, &desired, &run)?, desired))
}

/// Whether the live rules do with every packet what the options ask for, in whatever form they are. `Err`: the comparison.
///
/// # Errors
/// The live state cannot be read.
pub fn check_packets(
    host: &impl Host,
    resolved: Resolved,
    backend: Backend,
) -> Result<Result<(), String>, Failure> {
    let Resolved { mut run, intent, .. } = resolved;
    require_net_admin()?;
    enter(&run)?;
    if backend == Backend::Native {
        run.backend = BackendChoice::Nftables;
    }
    let known = diff_inputs::DiffContext { intent, run, network };
    let (report, conclusion) = diff_inputs::options_and_live(host, &known)?;
    Ok(if conclusion == Conclusion::Equal { Ok(()) } else { Err(report) })
}

/// Excludes other runs from the namespace until the end of this one.
fn exclusive() -> Result<Option<run_lock::Lock>, Failure> {
    exclusive_within(WAIT_FOR_OTHER_RUN)
}

fn exclusive_within(wait: Duration) -> Result<Option<run_lock::Lock>, Failure> {
    match run_lock::lock(wait) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ run_lock::LockError::Busy(_)) => {
            let hint = "wait for that run to end, or end it if it is stuck; then run again";
            Err(Failure::new(Exit::Busy, error.to_string()).hint(hint))
        }
        // A kernel without nfnetlink_log. Two runs at once may both write there; the next one corrects that.
        Err(error @ run_lock::LockError::Failed(_)) => {
            log::info!("{error}: concurrent runs are not serialized");
            Ok(None)
        }
    }
}

fn decide(intent: Intent, run: &RunOptions) -> Result<CaptureConfig, Failure> {
    let network = network()?;
    let (config, notices) = intent.decide(&network);
    if run.action == Action::Apply {
        for notice in notices {
            log::log!(notice.level(), "{notice}");
        }
        log::info!("{config}");
    }
    Ok(config)
}

/// Rules for a name server are of no use where its address is replaced before. A recording knows this of the live rules only.
fn warn_of_name_servers(config: &CaptureConfig) {
    if recording::is_replayed() {
        return;
    }
    apply::runtime::translated_servers(config).iter().for_each(|server| log::warn!("{server}"));
}

fn desired(config: &CaptureConfig, action: Action, rewrite: bool) -> DesiredState {
    match action {
        Action::Apply => {
            let rules = policy::ruleset(config);
            let resolved = |family| (family, apply::sandbox::fitting(rules.resolve(family)));
            DesiredState {
                rules: Family::ALL.into_iter().map(resolved).collect(),
                network: routing::Desired::of(config),
                rewrite,
            }
        }
        Action::Cleanup => DesiredState::empty(),
    }
}
