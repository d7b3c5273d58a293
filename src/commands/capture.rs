//! `apply` and `cleanup`: changes the rules, or prints how they would be changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::namespace::{enter, network, require_net_admin, require_other_namespace};
use super::validate::validate;
use crate::apply;
use crate::config::{Action, CaptureConfig, Intent, RunOptions};
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::kernel::{recording, run_lock};
use crate::model::{Backend, Family};
use crate::plan::DesiredState;
use crate::policy;
use crate::report::Failure;
use crate::routing;

/// The time for which a run waits for another one in the same namespace.
const WAIT_FOR_OTHER_RUN: Duration = Duration::from_secs(30);

/// Changes the rules, or prints how they would be changed.
pub(super) fn capture(host: &impl Host, intent: Intent, run: &RunOptions) -> Result<(String, Exit), Failure> {
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
    let mut desired = desired(&config, run.action, run.force_apply);
    if run.action == Action::Apply {
        desired.config = Some(Arc::new(config.clone()));
    }
    Ok((config, desired))
}

/// Excludes other runs from the namespace until the end of this one.
pub(super) fn exclusive() -> Result<Option<run_lock::Lock>, Failure> {
    exclusive_within(WAIT_FOR_OTHER_RUN)
}

pub(super) fn exclusive_within(wait: Duration) -> Result<Option<run_lock::Lock>, Failure> {
    match run_lock::lock(wait) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ run_lock::LockError::Busy(_)) => {
            let hint = "wait for that run to end, or end it if it is stuck; then run again";
            Err(Failure::new(Exit::Busy, error.to_string()).hint(hint))
        }
        // A kernel without nfnetlink_log. Two runs at once may both write there; the next one corrects that.
        Err(error @ run_lock::LockError::Failed(_)) => {
            // A guard asks at each audit.
            static IS_LOGGED: AtomicBool = AtomicBool::new(false);
            if !IS_LOGGED.swap(true, Ordering::Relaxed) {
                log::info!("{error}: concurrent runs are not serialized");
            }
            Ok(None)
        }
    }
}

pub(super) fn decide(intent: Intent, run: &RunOptions) -> Result<CaptureConfig, Failure> {
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

/// Rules for a name server are of no use where its address is replaced before. A recording knows this of the
/// live rules only.
pub(super) fn warn_of_name_servers(config: &CaptureConfig) {
    if recording::is_replayed() {
        return;
    }
    apply::pod_runtime::translated_servers(config).iter().for_each(|server| log::warn!("{server}"));
}

pub(super) fn desired(config: &CaptureConfig, action: Action, rewrite: bool) -> DesiredState {
    match action {
        Action::Apply => {
            let rules = policy::ruleset(config);
            let resolved = |family| (family, apply::sandbox::fitting(rules.resolve(family)));
            DesiredState {
                rules: Family::ALL.into_iter().map(resolved).collect(),
                network: routing::Desired::of(config),
                rewrite,
                config: None,
            }
        }
        Action::Cleanup => DesiredState::empty(),
    }
}
