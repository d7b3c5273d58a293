//! `check`: the live rules against those of the options, or those that they come from.

use super::capture::{decide, desired, warn_of_name_servers};
use super::check_format;
use super::diff;
use super::interfaces;
use super::namespace::{enter, network, of_fixes, require_net_admin};
use crate::apply::live_inspection::LiveInspection;
use crate::apply::{self, Access, differences::Differences};
use crate::config::{
    Action, AsOptions, BackendChoice, CaptureConfig, GivenOption, Intent, Notice, OptionScope, Output,
    Resolved, RunOptions,
};
use crate::diff::Conclusion;
use crate::exit::Exit;
use crate::explain;
use crate::facts::NameServers;
use crate::finding::{Finding, Problem};
use crate::kernel::process::Host;
use crate::model::Backend;
use crate::plan::{CurrentState, DesiredState, Notices};
use crate::report::Failure;

/// The report, and the exit code that says whether the rules are equal. Nothing is changed.
pub(super) fn report(
    host: &impl Host,
    output: Output,
    intent: Intent,
    run: &RunOptions,
    (scope, given): (OptionScope, &[GivenOption]),
) -> Result<(String, Exit), Failure> {
    let current = apply::inspect(host, run.backend, Access::Question)?.current;
    let Checked { config, options, own, has_no_rules } = checked(&current, intent, run, scope)?;
    interfaces::warn_of_options(&config.traffic);
    warn_of_name_servers(&config);
    let found = Differences { has_no_rules, ..compared(&current, (&config, given), own, run)? };
    let exit = if found.is_none() { Exit::Done } else { Exit::Different };
    let mut text = check_format::check(&found, options.as_ref(), output);
    if output == Output::Text && !found.problems().is_empty() {
        text.push_str(&of_fixes(run));
    }
    Ok((text, exit))
}

/// Compares the live rules with those of a configuration and the options for it that differ from their
/// defaults; `own` are the live rules, if they are read already.
pub(super) fn compared(
    current: &CurrentState,
    (config, given): (&CaptureConfig, &[GivenOption]),
    own: Option<LiveInspection>,
    run: &RunOptions,
) -> Result<Differences, Failure> {
    let mut found =
        apply::differences::differences_from(current, &desired(config, Action::Apply, false), run);
    let link_local = Notice::of_link_local_name_server(config);
    let link_local = link_local.map(|notice| Finding::new(Problem::NotEvaluated, notice.to_string()));
    found.notices.others.extend(link_local);
    // What a run would change may be the cause.
    if found.others.is_empty() {
        let own = own.unwrap_or_else(|| apply::live_inspection::rules_of(current));
        add_of_live(&mut found, own, (config, given), &run.name_servers)?;
    }
    Ok(found)
}

/// Adds policy rules, routes, foreign rules and sockets of the proxy by which captured connections or those
/// of the proxy end and that are not named yet, and what else `explain --live` names where the rules are
/// equal.
fn add_of_live(
    found: &mut Differences,
    own: LiveInspection,
    (config, given): (&CaptureConfig, &[GivenOption]),
    name_servers: &NameServers,
) -> Result<(), Failure> {
    let network = network()?;
    // Facts of name servers are recorded for the live rules only.
    let is_same = found.is_same();
    let runtime = || apply::pod_runtime::runtime(&own.rules, config, &network);
    let whole = is_same.then(runtime);
    let (runtime, unread) = whole.unwrap_or_else(|| {
        (
            explain::Runtime {
                listeners: apply::pod_runtime::tcp_listeners(),
                ..explain::Runtime::default()
            },
            Vec::new(),
        )
    });
    let mut pod = explain::Pod { config, given, network: &network, live: Some(own.live) };
    let Notices { deciding, others, .. } = &mut found.notices;
    for finding in of_namespace(&pod) {
        if !deciding.iter().chain(&*others).any(|known| known.is_about_any(&finding.about)) {
            deciding.push(finding.clone());
        }
    }
    let known: Vec<_> = deciding.iter().chain(others.iter()).cloned().collect();
    let lost = explain::lost_live_connections(&pod, &known);
    let is_vague = |finding: &Finding| lost.iter().any(|exact| exact.is_within(finding, found.backend));
    deciding.retain(|finding| !is_vague(finding));
    others.retain(|finding| !is_vague(finding));
    // What is known of a rule comes before what its chain may do.
    deciding.splice(0..0, lost);
    // Not before: rules are compared whether a proxy runs or not.
    if let Some(live) = &mut pod.live {
        live.runtime = explain::Runtime { name_servers: name_servers.clone(), ..runtime };
    }
    deciding.extend(explain::lost_at_proxy(&pod));
    if is_same {
        found.notices.unread.extend(unread);
        found.add_of_pod(explain::problems(&pod));
    }
    Ok(())
}

/// What keeps captured connections from the proxy although the rules are right, and is known before a packet
/// is followed: `lo`, policy rules and routes.
fn of_namespace<'a>(pod: &'a explain::Pod<'_>) -> impl Iterator<Item = &'a Finding> {
    let is_of_namespace =
        |finding: &&Finding| matches!(finding.problem, Problem::LoopbackUnusable | Problem::PolicyRouting);
    pod.live.iter().flat_map(explain::LiveState::foreign).filter(is_of_namespace)
}

/// What the live rules are compared with.
pub(super) struct Checked {
    pub(super) config: CaptureConfig,
    /// The options that the rules come from, where none about traffic are given.
    options: Option<AsOptions>,
    /// The live rules, if they were read for that.
    own: Option<LiveInspection>,
    /// Whether there are neither rules nor options.
    pub(super) has_no_rules: bool,
}

/// What the live rules are compared with: the options that are given. Without any about traffic, those that
/// the rules come from.
pub(super) fn checked(
    current: &CurrentState,
    intent: Intent,
    run: &RunOptions,
    scope: OptionScope,
) -> Result<Checked, Failure> {
    if scope == OptionScope::Traffic {
        let config = decide(intent, run)?;
        return Ok(Checked { config, options: None, own: None, has_no_rules: false });
    }
    let own = apply::live_inspection::rules_of(current);
    let network = network()?;
    let (otherwise, notices) = intent.decide(&network);
    if own.rules.values().next().is_none() {
        return Ok(Checked { config: otherwise, options: None, own: Some(own), has_no_rules: true });
    }
    let mut config = own.nearest_config(&otherwise, &network).config;
    if scope == OptionScope::Families {
        config.families = otherwise.families;
    }
    for notice in notices.iter().filter(|_| config.families == otherwise.families) {
        log::log!(notice.level(), "{notice}");
    }
    let options = Some(AsOptions::of(&config, otherwise.families));
    Ok(Checked { config, options, own: Some(own), has_no_rules: false })
}

/// Compares the live rules of this thread's network namespace with what the options ask for, which is
/// returned, too. Nothing is changed.
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

/// What of this thread's network namespace keeps captured connections from the proxy, although the rules are
/// right. Nothing is changed.
///
/// # Errors
/// The live state cannot be read.
pub fn unreachable(host: &impl Host, resolved: Resolved) -> Result<Vec<Finding>, Failure> {
    let Resolved { run, intent, .. } = resolved;
    require_net_admin()?;
    enter(&run)?;
    let network = network()?;
    let (config, _) = intent.decide(&network);
    let live = apply::live_inspection::rules(host, run.backend)?.live;
    let pod = explain::Pod { config: &config, given: &[], network: &network, live: Some(live) };
    let mut found: Vec<Finding> = of_namespace(&pod).cloned().collect();
    found.extend(explain::misrouted(&pod, &found));
    Ok(found)
}

/// Whether the live rules do with every packet what the options ask for, in whatever form they are. `Err`:
/// the comparison.
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
    let known = diff::DiffContext { intent, run, network };
    let (report, conclusion) = diff::options_and_live(host, &known)?;
    Ok(if conclusion == Conclusion::Equal { Ok(()) } else { Err(report) })
}
