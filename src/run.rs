//! One run, in the order of its stages.

use std::time::Duration;

use crate::apply;
use crate::apply::differences::Differences;
use crate::bundle;
use crate::color;
use crate::compare::Conclusion;
use crate::config::{
    Action, AsOptions, Asked, BackendChoice, CaptureConfig, Color, GivenOption, Intent, PacketQuery,
    Question, Resolved, RunOptions, Sender, Validation,
};
use crate::exit::Exit;
use crate::explain;
use crate::format;
use crate::interfaces;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::process::Host;
use crate::kernel::recording::{self, Facts};
use crate::kernel::{lock, netns, observe, probe, rtnetlink, terminal};
use crate::model::{Backend, Family, Network};
use crate::plan::{self, DesiredState};
use crate::policy;
use crate::report::Failure;
use crate::routing;
use crate::sides;
use crate::text::path_shown;
use crate::watch;

/// How long a run waits for another one in the same namespace.
const WAIT_FOR_OTHER_RUN: Duration = Duration::from_secs(30);

/// Does what the options ask for. What is meant for standard output is handed back, with the exit code.
///
/// # Errors
/// The first stage that fails.
pub fn run(host: &impl Host, resolved: Resolved) -> Result<(String, Exit), Failure> {
    let Resolved { run, log: _, query, question, diff, color, intent, warnings, given, asked } = resolved;
    let has_colors = match color {
        Color::Always => true,
        Color::Auto => terminal::is_terminal(),
        Color::Never => false,
    };
    let paint = |answer: String| if has_colors { color::paint(&answer) } else { answer };
    for warning in &warnings {
        log::warn!("{warning}");
    }
    if let Some(query) = query {
        return explain(host, &query, intent, &run, &given).map(|answer| (paint(answer), Exit::Done));
    }
    if let Some(question) = question {
        return answer(host, question, intent, &run, asked, &paint)
            .map(|(answer, exit)| (paint(answer), exit));
    }
    if let Some(query) = diff {
        enter(&run)?;
        let known = sides::DiffContext { intent, run, network: network()? };
        return sides::diff(host, &query, &known).map(|(answer, exit)| (paint(answer), exit));
    }
    if !given.is_empty() {
        let options: Vec<String> = given.iter().map(ToString::to_string).collect();
        log::info!("options: {}", options.join(" "));
    }
    if !run.dry_run && !run.skip_rule_apply {
        require_net_admin()?;
    }
    if run.action == Action::Apply && !run.skip_rule_apply {
        require_other_namespace(&run)?;
    }
    enter(&run)?;
    let config = decide(intent, &run)?;
    if run.action == Action::Apply {
        warn_of_name_servers(&config);
    }
    let desired = desired(&config, run.action, run.force_apply);
    let printed = if run.skip_rule_apply {
        log::info!("rules are not changed (--skip-rule-apply)");
        String::new()
    } else if run.dry_run {
        apply::dry_run(host, &desired, &run)?
    } else {
        let _lock = exclusive()?;
        apply::apply(host, &desired, &run)?;
        String::new()
    };
    if let Some(validation) = run.validation.filter(|_| !run.dry_run) {
        validate(host, &config, &desired, &run, validation)?;
    }
    Ok((printed, Exit::Done))
}

/// Compares the live rules of this thread's network namespace with what the options ask for. Nothing is changed.
///
/// # Errors
/// They cannot be read.
pub fn check(host: &impl Host, resolved: Resolved) -> Result<Differences, Failure> {
    let Resolved { run, intent, .. } = resolved;
    require_net_admin()?;
    enter(&run)?;
    let (config, _) = intent.decide(&network()?);
    apply::differences::differences(host, &desired(&config, Action::Apply, false), run.backend)
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
    let known = sides::DiffContext { intent, run, network: network()? };
    let (answer, conclusion) = sides::options_and_live(host, &known)?;
    Ok(if conclusion == Conclusion::Equal { Ok(()) } else { Err(answer) })
}

/// Answers a question about the live rules. Nothing is changed.
fn answer(
    host: &impl Host,
    question: Question,
    intent: Intent,
    run: &RunOptions,
    asked: Asked,
    paint: &dyn Fn(String) -> String,
) -> Result<(String, Exit), Failure> {
    require_net_admin()?;
    enter(run)?;
    match question {
        Question::Bundle(context) => {
            let (facts, answer) = record(host, &intent, run);
            Ok((bundle::write(&context, &facts, &answer), Exit::Done))
        }
        Question::Check(output) => {
            let (config, read) = checked(host, intent, run, asked)?;
            interfaces::warn_of_options(&config.traffic);
            warn_of_name_servers(&config);
            let desired = desired(&config, Action::Apply, false);
            let found = apply::differences::differences(host, &desired, run.backend)?;
            let exit = if found.is_none() { Exit::Done } else { Exit::Different };
            Ok((format::check(&found, read.as_ref(), output), exit))
        }
        Question::Show { output, watch: true } => {
            watch::watch(host, run.backend, output, paint).map(|()| (String::new(), Exit::Done))
        }
        Question::Show { output, watch: false } => {
            let shown = apply::show::rules(host, run.backend)?;
            Ok((format::show(&shown, None, output), Exit::Done))
        }
    }
}

/// What the live rules are compared with: the options that are given. Without any about traffic, those that the rules come from:
/// then these are returned, too.
fn checked(
    host: &impl Host,
    intent: Intent,
    run: &RunOptions,
    asked: Asked,
) -> Result<(CaptureConfig, Option<AsOptions>), Failure> {
    if asked == Asked::Traffic {
        return decide(intent, run).map(|config| (config, None));
    }
    let own = apply::live::rules(host, run.backend)?;
    if own.rules.values().next().is_none() {
        return decide(intent, run).map(|config| (config, None));
    }
    let (otherwise, notices) = intent.decide(&network()?);
    let mut config = own.config(&otherwise);
    if asked == Asked::Families {
        config.families = otherwise.families;
    }
    for notice in notices.iter().filter(|_| config.families == otherwise.families) {
        log::log!(notice.level(), "{notice}");
    }
    let options = AsOptions::of(&config, otherwise.families);
    Ok((config, Some(options)))
}

/// How often a machine is recorded whose rules change meanwhile.
const RECORDINGS: usize = 5;

/// Reads all that answers about this network namespace depend on, with the answer about all kinds of traffic. What cannot be
/// read is recorded as that.
fn record(host: &impl Host, intent: &Intent, run: &RunOptions) -> (Facts, String) {
    let query = PacketQuery { live: true, ..explain::query(Sender::App) };
    let mut recorded = (Facts::new(), String::new());
    for _ in 0..RECORDINGS {
        let generation = observe::generation().ok();
        recording::start();
        apply::runtime::record_owners();
        // Answers are read by what they are made by. A backend may be asked for elsewhere that is not here.
        let answers = [run.backend].into_iter().chain(BackendChoice::ALL).map(|backend| {
            let run = RunOptions { backend, network_namespace: None, cni_mode: false, ..run.clone() };
            let answer = explain(host, &query, intent.clone(), &run, &[]);
            let _ = apply::show::rules(host, backend);
            if let Ok(network) = network() {
                let (config, _) = intent.clone().decide(&network);
                let desired = desired(&config, Action::Apply, false);
                let _ = apply::differences::differences(host, &desired, backend);
            }
            answer.unwrap_or_else(|failure| failure.to_string())
        });
        let answer = answers.reduce(|first, _| first).unwrap_or_default();
        recorded = (recording::finish(), answer);
        if observe::generation().ok() == generation {
            return recorded;
        }
    }
    log::warn!(
        "the rules changed each of the {RECORDINGS} times they were read: the bundle may have parts of both"
    );
    recorded
}

/// What happens to a packet: nothing is changed, and no privilege needed but that to enter another namespace.
fn explain(
    host: &impl Host,
    query: &PacketQuery,
    intent: Intent,
    run: &RunOptions,
    given: &[GivenOption],
) -> Result<String, Failure> {
    enter(run)?;
    let network = network()?;
    let (config, notices) = intent.decide(&network);
    interfaces::warn_of_query(query);
    if !query.live {
        for notice in notices {
            log::log!(notice.level(), "{notice}");
        }
    }
    let (config, live) = if query.live {
        let own = apply::live::rules(host, run.backend)?;
        let config = own.config(&config);
        let (runtime, unread) = apply::runtime::runtime(&own.rules, &config, &network);
        let mut live = explain::Live { runtime, ..own.live };
        live.notices.extend(unread.into_iter().filter(|_| query.destination.is_none()));
        (config, Some(live))
    } else {
        (config, None)
    };
    Ok(explain::answer(query, &explain::Pod { config: &config, given, network: &network, live }))
}

/// Excludes other runs from the namespace until the end of this one.
fn exclusive() -> Result<Option<lock::Lock>, Failure> {
    match lock::lock(WAIT_FOR_OTHER_RUN) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ lock::LockError::Busy(_)) => {
            let hint = "wait for that run to end, or end it if it is stuck; then run again";
            Err(Failure::new(Exit::Busy, error.to_string()).hint(hint))
        }
        // A kernel without nfnetlink_log. Two runs at once may both write there; the next one corrects that.
        Err(error @ lock::LockError::Failed(_)) => {
            log::info!("{error}: two runs at once are not kept apart");
            Ok(None)
        }
    }
}

/// Without NET_ADMIN nothing can be read or written: reported before anything is tried.
fn require_net_admin() -> Result<(), Failure> {
    if recording::is_replayed() {
        return Ok(());
    }
    // If the kernel does not say, the first request reports it.
    let has = Capabilities::current().map_or(true, |capabilities| capabilities.net_admin);
    if has {
        return Ok(());
    }
    Err(Failure::new(Exit::NoPermission, "missing capability NET_ADMIN").hint(
        "add it to the container (securityContext.capabilities.add: [NET_ADMIN]) and run as root (runAsUser: 0); \
         --dry-run needs neither",
    ))
}

/// A pod with `hostNetwork: true` has the network namespace of its node: rules for it would capture everything there.
fn require_other_namespace(run: &RunOptions) -> Result<(), Failure> {
    let Some(namespace) = &run.network_namespace else { return Ok(()) };
    let path = namespace.path();
    // What cannot be opened is reported when it is entered.
    let named = netns::Namespace::open(&path).ok().and_then(|opened| opened.id().ok());
    if named.is_none() || named != netns::NamespaceId::of_thread().ok() {
        return Ok(());
    }
    let option = namespace.option().spec().name;
    let what = format!(
        "--{option}: {} is the network namespace of this process: rules for it would capture all traffic of this machine",
        path_shown(&path)
    );
    Err(Failure::new(Exit::Usage, what).hint(format!(
        "a pod with hostNetwork has no network namespace of its own and cannot be captured: name a process of another pod; to \
         capture this machine, leave --{option} out"
    )))
}

fn enter(run: &RunOptions) -> Result<(), Failure> {
    if let Some(namespace) = &run.network_namespace {
        netns::enter(&namespace.path()).map_err(|error| {
            let exit = match error {
                netns::EnterError::NoPermission(_) => Exit::NoPermission,
                netns::EnterError::Missing(_)
                | netns::EnterError::NotANamespace(_)
                | netns::EnterError::Other(..) => Exit::Usage,
            };
            let option = namespace.option().spec().name;
            Failure::new(exit, format!("--{option}: {error}")).hint(
                "give the process with --pid, or a path such as /proc/<pid>/ns/net or /var/run/netns/<name>, and run as \
                 root on the host",
            )
        })?;
    }
    // Native nftables runs no tool, and copying the mounts of a busy node takes longer than its rules.
    if run.cni_mode
        && !run.dry_run
        && run.backend != BackendChoice::Nftables
        && let Err(error) = netns::private_mounts_without_nss()
    {
        log::warn!("the host's name service is not hidden from the tools: {error}");
    }
    Ok(())
}

fn network() -> Result<Network, Failure> {
    rtnetlink::network()
        .map_err(|error| apply::from_kernel(format!("cannot read the pod's addresses: {error}"), &error))
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
            DesiredState {
                rules: Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect(),
                network: routing::Desired::of(config),
                rewrite,
            }
        }
        Action::Cleanup => DesiredState::empty(),
    }
}

/// Compares the live rules with what the options ask for. Returns what else there is to say about them.
fn compare(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<Vec<String>, Failure> {
    // A run that put rules in may look into the tables that it wrote.
    let access = if run.skip_rule_apply { apply::Access::ReadOnly } else { apply::Access::MayCreateTables };
    let inspection = apply::inspect(host, run.backend, access)?;
    // An earlier run may have left what keeps connections of a family without rules open.
    let desired = &desired.clone().accepting_kept_translation(&inspection.current);
    apply::require_active_tables(desired, &inspection.current)?;
    apply::check::rules(host, desired, inspection.decision.backend)?;
    Ok(plan::notices(desired, &inspection.current).all())
}

/// The likely cause: missing rules, or an exemption of the probe although the rules are live.
fn why_not_captured(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> &'static str {
    if compare(host, desired, run).is_ok() {
        "the rules match these options, so the probe is exempt: by an option (does -o, -e, -c lo or \
         ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR cover it? --iptables-probe-port takes another port), or by a foreign rule \
         before ours (`iptables-save`)"
    } else {
        "no rule seems to redirect the proxy's traffic in this pod: did istio-init run, or was the CNI plugin ready before \
         the pod started? delete the pod to have it set up again; as root, `--dry-run` shows what is missing"
    }
}

/// A connection to the probe's port is made and has to arrive at the proxy's.
fn validate(
    host: &impl Host,
    config: &CaptureConfig,
    desired: &DesiredState,
    run: &RunOptions,
    validation: Validation,
) -> Result<(), Failure> {
    let first = |ids: &[u32]| ids.first().copied().unwrap_or_default();
    let outcome = probe::probe(&probe::Probe {
        families: config.families,
        capture_ports: [config.traffic.ports.outbound, config.traffic.ports.inbound],
        port: validation.port,
        uid: first(&config.traffic.proxy.uids),
        gid: first(&config.traffic.proxy.gids),
        timeout: validation.timeout,
    });
    let failed =
        |hint: &str| Failure::new(Exit::ValidationFailed, format!("validation failed: {outcome}")).hint(hint);
    match &outcome {
        probe::Outcome::Captured(_) => {
            match validate_rules(host, desired, run) {
                // The validation container may not read rules.
                Err(failure) if matches!(failure.exit, Exit::NoPermission | Exit::Unavailable) => {
                    log::info!(
                        "the live rules are not compared, since they cannot be read: {}",
                        failure.what
                    );
                }
                compared => compared?,
            }
            log::info!("validation passed: {outcome}");
            Ok(())
        }
        probe::Outcome::NotCaptured(_) => {
            let dormant = apply::inspect(host, run.backend, apply::Access::ReadOnly)
                .ok()
                .and_then(|inspection| apply::require_active_tables(desired, &inspection.current).err());
            Err(dormant.map_or_else(
                || failed(why_not_captured(host, desired, run)),
                |dormant| failed(&dormant.hint.unwrap_or_default()).detail(dormant.what),
            ))
        }
        probe::Outcome::CannotListen { .. } => Err(failed(
            "the proxy's ports must be free while the probe runs: is the proxy running already, or do -p and -z name \
             a port of the app?",
        )),
        probe::Outcome::Unable { .. } => {
            log::info!("{outcome}: the rules are compared instead");
            validate_rules(host, desired, run).map_err(validation_failed)?;
            log::info!("validation passed: the live rules match the options");
            Ok(())
        }
    }
}

/// The probe goes one way only: the rules of both directions are compared too.
fn validate_rules(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<(), Failure> {
    let notices = compare(host, desired, run).map_err(|failure| {
        if failure.exit == Exit::Refused { validation_failed(failure) } else { failure }
    })?;
    // An applying run has reported it already.
    for notice in notices.iter().filter(|_| run.skip_rule_apply) {
        log::warn!("{notice}");
    }
    Ok(())
}

/// The same failure, with the exit code that reports missing capture.
fn validation_failed(failure: Failure) -> Failure {
    if failure.exit == Exit::ValidationFailed {
        return failure;
    }
    let what = format!("validation failed: {}", failure.what);
    Failure { exit: Exit::ValidationFailed, what, ..failure }
}
