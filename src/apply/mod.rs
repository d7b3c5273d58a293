//! From a goal to a kernel that holds it: look, plan, do, look again.

pub mod check;
mod connections;
mod conntrack;
mod execute;
mod hidden;
mod look;
mod track;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::backend::{Decision, Tools, Variant};
use crate::commits;
use crate::config::{Action, BackendChoice, RunOptions};
use crate::connections::{Connections, Policy};
use crate::conntrack::Entries;
use crate::exit::Exit;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::process::Host;
use crate::kernel::{limits, observe, restore, rules_file, tools};
use crate::model::Family;
use crate::plan::{self, Goal, Situation, Step};
use crate::render;
use crate::report::Failure;
use crate::routing;
use crate::text::one_line;

pub use execute::execute;
pub use look::{Outlook, Touch, look};

/// Applies a goal, whole.
///
/// # Errors
/// The first of the four stages that fails.
pub fn apply(host: &impl Host, goal: &Goal, run: &RunOptions) -> Result<(), Failure> {
    let start = Instant::now();
    let Outlook { decision: Decision { variant, why }, mut situation } =
        look(host, run.backend, Touch::Tables)?;
    log::info!("backend {variant}: {why}");
    let policy = connection_policy(run);
    let goal = &with_connections(goal, &mut situation, policy);
    for outcome in situation.connections.outcome(policy, false) {
        log::log!(if policy == Policy::Reset { log::Level::Warn } else { log::Level::Info }, "{outcome}");
    }
    for connections in situation.connections.cut_off(policy) {
        log::warn!("{connections}");
    }
    let steps = steps(goal, &situation);
    for remark in plan::remarks(goal, &situation, &steps) {
        log::warn!("{remark}");
    }
    execute(host, &steps, variant, run)?;
    check::counts(goal, variant)?;
    if run.verify {
        check::rules(host, goal, variant)?;
    }
    if log::log_enabled!(log::Level::Debug) {
        log_final_state(host, goal, variant);
    }
    if policy == Policy::Reset {
        for outcome in situation.connections.outcome(policy, true) {
            log::info!("{outcome}");
        }
    }
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let took = humantime::format_duration(Duration::from_micros(micros));
    let outcome = if steps.is_empty() { "already converged, nothing written" } else { "done" };
    log::info!("{outcome}: {} in place ({took})", goal.counts());
    Ok(())
}

/// The plan, in commits that the kernel accepts.
fn steps(goal: &Goal, situation: &Situation) -> Vec<Step> {
    let steps = plan::plan(goal, situation);
    let limited = situation.variant == Variant::Nft
        && steps.iter().any(commits::is_long)
        && observe::is_message_limited();
    if limited { commits::split(steps, situation) } else { steps }
}

/// Clean-up leaves nothing unless it is asked to; every other run keeps connections.
const fn connection_policy(run: &RunOptions) -> Policy {
    match (run.action, run.keep_connections) {
        (Action::Apply, _) | (Action::Cleanup, true) => Policy::Keep,
        (Action::Cleanup, false) => Policy::Reset,
    }
}

/// Looks at the open connections, and adds to the goal what those need that are kept.
fn with_connections(goal: &Goal, situation: &mut Situation, policy: Policy) -> Goal {
    situation.connections = connections::look(goal, situation);
    match policy {
        Policy::Keep => goal.clone().keeping_translation(&situation.connections),
        Policy::Reset => goal.clone(),
    }
}

/// What a real run would do, printed; nothing is changed.
///
/// # Errors
/// `DRY_RUN_FILE_PATH` cannot be written.
pub fn dry_run(host: &impl Host, goal: &Goal, run: &RunOptions) -> Result<String, Failure> {
    let policy = connection_policy(run);
    let (situation, goal, remark) = match look(host, run.backend, Touch::Nothing) {
        Ok(Outlook { decision: Decision { variant, why }, mut situation }) => {
            let goal = with_connections(goal, &mut situation, policy);
            (situation, goal, format!("backend {variant}: {why}"))
        }
        Err(failure) => {
            let remark =
                format!("the live state cannot be read ({}): the plan for an empty namespace", failure.what);
            (empty_situation(run.backend), goal.clone(), remark)
        }
    };
    if let Some(path) = &run.dry_run_file {
        keep_dry_run(&goal, path)?;
    }
    let Situation { connections, .. } = &situation;
    let remarks = [vec![remark], connections.outcome(policy, false), connections.cut_off(policy)].concat();
    Ok(describe(&remarks, &steps(&goal, &situation), &goal))
}

/// The rules of this run, whole.
fn keep_dry_run(goal: &Goal, path: &Path) -> Result<(), Failure> {
    for family in Family::ALL {
        let rules = goal.rules.get(&family).filter(|rules| rules.count() > 0);
        // A run without IPv6 rules has no second file; what stands at its name belongs to another run or program.
        if rules.is_some() || family == Family::V4 {
            let text = rules.map(render::fresh).unwrap_or_default();
            rules_file::show("DRY_RUN_FILE_PATH", &rules_file::path_of(path, family), &text)?;
        }
    }
    Ok(())
}

fn empty_situation(choice: BackendChoice) -> Situation {
    let variant = match choice {
        BackendChoice::IptablesLegacy => Variant::Legacy,
        BackendChoice::Auto | BackendChoice::Iptables | BackendChoice::IptablesNft => Variant::Nft,
    };
    Situation {
        variant,
        rules: BTreeMap::new(),
        native_tables: Vec::new(),
        network: routing::Observed::default(),
        entries: Entries::None,
        connections: Connections::default(),
    }
}

fn describe(remarks: &[String], steps: &[Step], goal: &Goal) -> String {
    let remarks: Vec<_> = remarks.iter().map(|remark| one_line(remark)).collect();
    let mut text = format!("# dry run: nothing is changed\n# {}\n", remarks.join("\n# "));
    if steps.is_empty() {
        text += &format!("# already converged: {}, nothing to do\n", goal.counts());
    }
    for (number, step) in (1..).zip(steps) {
        text += &format!("# step {number} of {}: {step}\n", steps.len());
        if let Step::Restore(restore) = step {
            text += &restore.text;
        }
    }
    text
}

/// The tools of a variant for a family; without them nothing is begun.
fn needed(host: &impl Host, variant: Variant, family: Family, why: &str) -> Result<Tools, Failure> {
    tools::tools(host, variant, family).ok_or_else(|| {
        let (ip, word) = (tools::base_name(family), variant.word());
        let what =
            format!("{ip}-{word}-restore and {ip}-{word}-save are needed ({why}) and are not both in PATH");
        let hint = match family {
            Family::V4 => format!("put the tools of {variant} into the image"),
            Family::V6 => format!("put {ip} into the image, or leave IPv6 alone with --ip-family ipv4"),
        };
        Failure::new(Exit::Unavailable, what).hint(hint)
    })
}

/// What to do about an error of a system call, where that can be said without knowing the call.
pub(crate) fn hint(error: &io::Error) -> Option<&'static str> {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return limits::hint(error);
    }
    Some(if Capabilities::current().is_ok_and(|has| has.net_admin) {
        "the capability NET_ADMIN is there, so something else forbids it: a seccomp profile \
         (securityContext.seccompProfile), SELinux or AppArmor, or the network namespace belongs to another user namespace"
    } else {
        "the container needs the capability NET_ADMIN (securityContext.capabilities.add) and must run as root"
    })
}

/// A refusal of the kernel; a missing privilege is told apart, with what to do.
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

/// What stands at the end, for whoever asked for every detail. A tool that fails here has done its work before.
fn log_final_state(host: &impl Host, goal: &Goal, variant: Variant) {
    for rules in goal.rules.values().filter(|rules| rules.count() > 0) {
        let family = rules.family;
        let saved = needed(host, variant, family, "the final state is logged")
            .and_then(|tools| restore::save(host, variant, family, &tools));
        if let Ok(text) = saved {
            log::debug!("{family} rules of {variant} at the end:\n{}", text.trim_end());
        }
    }
}
