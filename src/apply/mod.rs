//! Makes the kernel hold the desired state: inspect, plan, execute, check.

mod bpf_programs;
pub mod check;
mod closest_config;
pub mod commits;
mod delete_by_handle;
pub mod differences;
mod dry_run;
mod execute;
mod execute_native;
mod fallback;
mod inspect;
pub mod live_inspection;
pub mod lockdown;
mod missing_modules;
mod nat_chains;
pub mod network;
mod open_connections;
pub mod pod_runtime;
pub mod preconditions;
mod rollback;
pub mod sandbox;
pub mod show;
mod tool_error;
mod unevaluated_hooks;
mod unlisted_chains;

use std::io;
use std::time::{Duration, Instant};

use execute::RunProgress;
use lockdown::Ended;
use open_connections::Counting;

use crate::config::{Action, RunOptions};
use crate::connections::execute::entries_during_capture;
use crate::connections::{Connections, Policy};
use crate::exit::Exit;
use crate::kernel::capabilities::{self, Capabilities};
use crate::kernel::process::Host;
use crate::kernel::{limits, netns, observe, restore, tools, xtables_lock};
use crate::logging;
use crate::model::{Backend, Family, Tools, Variant};
use crate::plan::{self, CurrentState, DesiredState, Step};
use crate::report::Failure;

pub use dry_run::{Plan, dry_run};
pub use execute_native::{Differing, Guarded, differing as native_differing, restore as restore_native};
pub use inspect::{Access, Inspection, inspect};

/// Applies the desired state. Returns what holds the rules.
///
/// # Errors
/// The first of the four stages that fails. A first run is rolled back then: nothing of it is left. Where the
/// choice is open and the kernel lacks modules for the backend, the next one is taken.
pub fn apply(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<Backend, Failure> {
    let backend = write(host, desired, run)?;
    // Whatever guard began it: the rules are live, or are to be none.
    match lockdown::end(None) {
        Ok(Ended::Now) => log::info!("the lockdown of guard is over"),
        Ok(Ended::Before | Ended::RulesChanged) => {}
        Err(error) => log::warn!("the lockdown of guard cannot be ended: {error}"),
    }
    Ok(backend)
}

/// Same as [`apply()`], but a lockdown stays active, and the caller reports the outcome.
///
/// # Errors
/// As there.
pub fn repair(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<Backend, Failure> {
    logging::repairing(|| write(host, desired, run))
}

fn write(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<Backend, Failure> {
    let start = Instant::now();
    let Applied { desired, backend, connections, is_written, has_notices } =
        fallback::apply(host, desired, run)?;
    if connection_policy(run) == Policy::Reset {
        for outcome in connections.outcome(Policy::Reset, true) {
            log::info!("{outcome}");
        }
    }
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let took = humantime::format_duration(Duration::from_micros(micros));
    let outcome = if is_written { "done" } else { "already converged, nothing written" };
    let but = if desired.only_keeps_translation() {
        " but ISTIO_ESTABLISHED, which open connections need"
    } else if desired.is_empty() && has_notices {
        " but those of the warnings above"
    } else {
        ""
    };
    log::info!("{outcome}: {} in place{but} ({took})", desired.counts());
    Ok(backend)
}

/// What was applied.
struct Applied {
    desired: DesiredState,
    backend: Backend,
    connections: Connections,
    is_written: bool,
    has_notices: bool,
}

/// Changes; where connections may begin while rules go, once more when none can.
fn complete(
    host: &impl Host,
    desired: &DesiredState,
    run: &RunOptions,
    inspection: Inspection,
    written: &mut RunProgress,
) -> Result<Applied, Failure> {
    let ports = open_connections::redirect_ports(&inspection.current);
    let mut applied = change(host, desired, run, inspection, Counting::OnceCertain, written)?;
    if !applied.connections.may_begin.is_empty() {
        // Nothing captures any more: now it is certain which connections need what was kept.
        let inspection = inspect(host, run.backend, Access::MayCreateTables)?;
        let last = change(host, desired, run, inspection, Counting::Now, written)?;
        applied = Applied { is_written: true, ..last };
    }
    if connection_policy(run) == Policy::Reset {
        open_connections::delete_translated(&applied.connections, &ports);
    }
    Ok(applied)
}

/// Plans, executes and checks.
fn change(
    host: &impl Host,
    asked: &DesiredState,
    run: &RunOptions,
    mut inspection: Inspection,
    counting: Counting,
    written: &mut RunProgress,
) -> Result<Applied, Failure> {
    let backend = inspection.decision.backend;
    let policy = connection_policy(run);
    let mut desired = with_connections(asked, &mut inspection.current, policy, counting);
    let mut steps = steps(&desired, &inspection.current);
    let by_position =
        steps.iter().any(|step| matches!(step, Step::Restore(restore) if restore.by_position()));
    // A rule that is deleted by its place must still be there: nothing changes while the tools' lock is held.
    let lock = if by_position { hold_xtables_lock(run)? } else { None };
    if by_position {
        inspection = inspect(host, run.backend, Access::MayCreateTables)?;
        desired = with_connections(asked, &mut inspection.current, policy, counting);
        steps = self::steps(&desired, &inspection.current);
    }
    preconditions::check_steps(host, run, &desired, &inspection.current, &steps)?;
    let connections = &inspection.current.connections;
    // What a clean-up resets is logged as soon as it is certain.
    if policy == Policy::Keep || connections.may_begin.is_empty() {
        for outcome in connections.announcement(policy) {
            log::log!(if policy == Policy::Reset { log::Level::Warn } else { log::Level::Info }, "{outcome}");
        }
        connections.losing_passthrough(policy).iter().for_each(|sockets| log::warn!("{sockets}"));
    }
    connections.losing_marks().iter().for_each(|connections| log::warn!("{connections}"));
    let notices = plan::notices(&desired, &inspection.current).all();
    for notice in &notices {
        log::log!(logging::level_of_findings(), "{notice}");
    }
    let is_written = !steps.is_empty();
    delete_by_handle::execute(host, asked, steps, backend, run, lock.is_some(), written)?;
    drop(lock);
    // Where nothing was written, everything has just been compared whole.
    if run.verify {
        check::rules(host, &desired, backend)?;
    } else if is_written {
        check::counts(&desired, backend)?;
    }
    if log::log_enabled!(log::Level::Debug) {
        log_final_state(host, &desired, backend);
    }
    let connections = inspection.current.connections;
    Ok(Applied { desired, backend, connections, is_written, has_notices: !notices.is_empty() })
}

/// The plan, in commits that the kernel accepts.
fn steps(desired: &DesiredState, current: &CurrentState) -> Vec<Step> {
    let mut steps = plan::plan(desired, current);
    nat_chains::complete(&mut steps);
    let limited = current.backend == Backend::Iptables(Variant::Nft)
        && steps.iter().any(commits::is_long)
        && observe::is_message_limited();
    if limited { commits::split(steps, current) } else { steps }
}

/// Clean-up keeps connections only with `--keep-connections`; every other run keeps them.
const fn connection_policy(run: &RunOptions) -> Policy {
    match (run.action, run.keep_connections) {
        (Action::Apply, _) | (Action::Cleanup, true) => Policy::Keep,
        (Action::Cleanup, false) => Policy::Reset,
    }
}

/// Looks at the open connections, and adds to the desired state what those need that are kept.
fn with_connections(
    desired: &DesiredState,
    current: &mut CurrentState,
    policy: Policy,
    counting: Counting,
) -> DesiredState {
    current.connections = open_connections::inspect(desired, current, policy, counting);
    if !current.is_sandbox
        && let Some(entries) = entries_during_capture(&desired.rules, &current.entries)
    {
        current.entries = entries;
    }
    match policy {
        Policy::Reset if current.connections.may_begin.is_empty() => desired.clone(),
        Policy::Keep | Policy::Reset => desired.clone().keeping_translation(&current.connections),
    }
}

/// The lock of iptables-legacy, held by us from reading to writing; `None` where nothing can lock.
fn hold_xtables_lock(run: &RunOptions) -> Result<Option<xtables_lock::XtablesLock>, Failure> {
    // While this lock is held, the tool takes another one.
    if run.cni_mode || !netns::lock_file_usable() {
        return Ok(None);
    }
    match xtables_lock::lock(Duration::from_secs(restore::LOCK_WAIT_SECONDS.into())) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Failure::new(
            Exit::Busy,
            format!("another program held /run/xtables.lock for {} s", restore::LOCK_WAIT_SECONDS),
        )
        .hint("find it (`fuser /run/xtables.lock`) or run again")),
        Err(error) => {
            log::debug!("/run/xtables.lock cannot be held: {error}");
            Ok(None)
        }
    }
}

/// The tools of a variant for a family; without them nothing is begun.
fn needed(host: &impl Host, variant: Variant, family: Family, why: &str) -> Result<Tools, Failure> {
    tools::tools(host, variant, family).ok_or_else(|| {
        let (ip, word) = (tools::base_name(family), variant.word());
        let what =
            format!("{ip}-{word}-restore and {ip}-{word}-save are needed ({why}) and are not both in PATH");
        let hint = match family {
            Family::V4 => format!("put the tools of {variant} into the image"),
            Family::V6 => format!("put {ip} into the image, or disable IPv6 capture with --ip-family ipv4"),
        };
        Failure::new(Exit::Unavailable, what).hint(hint)
    })
}

/// A hint for an error of a system call that applies to every call.
pub(crate) fn hint(error: &io::Error) -> Option<&'static str> {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return limits::hint(error);
    }
    Some(if Capabilities::current().is_ok_and(|has| has.net_admin) {
        "the capability NET_ADMIN is present; check what else denies access: a seccomp profile \
         (securityContext.seccompProfile), SELinux or AppArmor, or the network namespace belongs to another user namespace"
    } else {
        capabilities::GRANT
    })
}

/// Maps a kernel error to a failure; a missing privilege has its own exit code and hint.
pub(crate) fn from_kernel(what: String, error: &io::Error) -> Failure {
    let hint = hint(error);
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Failure::new(Exit::NoPermission, what).hint(hint.unwrap_or_default());
    }
    let failure = Failure::new(Exit::Refused, what);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Logs the final state at debug level. A failing tool is ignored: the rules are already applied.
fn log_final_state(host: &impl Host, desired: &DesiredState, backend: Backend) {
    let Backend::Iptables(variant) = backend else { return };
    for rules in desired.rules.values().filter(|rules| rules.count() > 0) {
        let family = rules.family;
        if let Ok(text) = inspect::saved(host, variant, family, "the final state is logged") {
            log::debug!("{family} rules of {variant} at the end:\n{}", text.trim_end());
        }
    }
}
