//! `bundle`, `check`, `explain` and `show`: queries about a pod, which change nothing.

use super::namespace::{enter, network, require_net_admin};
use super::{decide, desired, warn_of_name_servers};
use crate::apply::live::Own;
use crate::apply::{self, Access, differences::Differences};
use crate::bundle;
use crate::config::{
    Action, AsOptions, BackendChoice, CaptureConfig, GivenOption, Intent, Notice, OptionScope, PacketQuery,
    Question, RunOptions, Sender,
};
use crate::exit::Exit;
use crate::explain;
use crate::finding::{Finding, Problem};
use crate::format;
use crate::interfaces;
use crate::kernel::observe;
use crate::kernel::process::Host;
use crate::kernel::recording::{self, Facts};
use crate::model::Network;
use crate::plan::{CurrentState, Notices};
use crate::report::Failure;
use crate::show_watch;

/// Reports on the live rules. Nothing is changed.
pub(super) fn report(
    host: &impl Host,
    question: Question,
    intent: Intent,
    run: &RunOptions,
    scope: OptionScope,
    paint: &dyn Fn(String) -> String,
) -> Result<(String, Exit), Failure> {
    require_net_admin()?;
    enter(run)?;
    match question {
        Question::Bundle(context) => {
            let (facts, report) = record(host, &intent, run);
            Ok((bundle::write(&context, &facts, &report), Exit::Done))
        }
        Question::Check(output) => {
            let current = apply::inspect(host, run.backend, Access::Question)?.current;
            let Checked { config, options, own, has_no_rules } = checked(&current, intent, run, scope)?;
            interfaces::warn_of_options(&config.traffic);
            warn_of_name_servers(&config);
            let found = Differences { has_no_rules, ..compared(&current, &config, own, run)? };
            let exit = if found.is_none() { Exit::Done } else { Exit::Different };
            Ok((format::check(&found, options.as_ref(), output), exit))
        }
        Question::Show { output, watch: true } => {
            show_watch::watch(host, run.backend, output, paint).map(|()| (String::new(), Exit::Done))
        }
        Question::Show { output, watch: false } => {
            let shown = apply::show::rules(host, run.backend)?;
            Ok((format::show(&shown, None, output), Exit::Done))
        }
    }
}

/// Compares the live rules with those of a configuration; `own` are the live rules, if they are read already.
pub(super) fn compared(
    current: &CurrentState,
    config: &CaptureConfig,
    own: Option<Own>,
    run: &RunOptions,
) -> Result<Differences, Failure> {
    let mut found =
        apply::differences::differences_from(current, &desired(config, Action::Apply, false), run);
    let wide = config.traffic.outbound.wide_exclusion();
    found.notices.others.extend(wide.map(|ranges| Finding::new(Problem::WideExclusion, ranges)));
    let link_local = Notice::of_link_local_name_server(config);
    let link_local = link_local.map(|notice| Finding::new(Problem::NotEvaluated, notice.to_string()));
    found.notices.others.extend(link_local);
    // What a run would change may be the cause.
    if found.others.is_empty() {
        let own = own.unwrap_or_else(|| apply::live::rules_of(current));
        add_of_live(&mut found, own, config)?;
    }
    Ok(found)
}

/// Adds policy rules, routes, foreign rules and sockets of the proxy by which captured connections or those of the proxy end and that are
/// not named yet, and what else `explain --live` names where the rules are equal.
fn add_of_live(found: &mut Differences, own: Own, config: &CaptureConfig) -> Result<(), Failure> {
    let network = network()?;
    // Facts of name servers are recorded for the live rules only.
    let is_same = found.is_same();
    let whole = is_same.then(|| apply::runtime::runtime(&own.rules, config, &network));
    let (runtime, unread) = whole.unwrap_or_else(|| {
        (
            explain::Runtime { listeners: apply::runtime::tcp_listeners(), ..explain::Runtime::default() },
            Vec::new(),
        )
    });
    let mut pod = explain::Pod { config, given: &[], network: &network, live: Some(own.live) };
    let Notices { deciding, others, .. } = &mut found.notices;
    for misrouted in explain::misrouted(&pod) {
        if !deciding.iter().any(|finding| finding.is_about_any(&misrouted.about)) {
            deciding.push(misrouted);
        }
    }
    let known: Vec<_> = deciding.iter().chain(others.iter()).cloned().collect();
    let lost = explain::lost_connections(&pod, &known);
    // What is known of a rule comes before what its chain may do.
    deciding.splice(0..0, lost);
    // Not before: rules are compared whether a proxy runs or not.
    if let Some(live) = &mut pod.live {
        live.runtime = runtime;
    }
    deciding.extend(explain::lost_at_proxy(&pod));
    if is_same {
        found.notices.unread.extend(unread);
        found.add_of_pod(explain::problems(&pod));
    }
    Ok(())
}

/// What the live rules are compared with.
pub(super) struct Checked {
    pub(super) config: CaptureConfig,
    /// The options that the rules come from, where none about traffic are given.
    options: Option<AsOptions>,
    /// The live rules, if they were read for that.
    own: Option<Own>,
    /// Whether there are neither rules nor options.
    pub(super) has_no_rules: bool,
}

/// What the live rules are compared with: the options that are given. Without any about traffic, those that the rules come from.
pub(super) fn checked(
    current: &CurrentState,
    intent: Intent,
    run: &RunOptions,
    scope: OptionScope,
) -> Result<Checked, Failure> {
    let of_options = |intent, own| {
        let has_no_rules = scope != OptionScope::Traffic;
        decide(intent, run).map(|config| Checked { config, options: None, own, has_no_rules })
    };
    if scope == OptionScope::Traffic {
        return of_options(intent, None);
    }
    let own = apply::live::rules_of(current);
    if own.rules.values().next().is_none() {
        return of_options(intent, Some(own));
    }
    let (otherwise, notices) = intent.decide(&network()?);
    let mut config = own.nearest_config(&otherwise).config;
    if scope == OptionScope::Families {
        config.families = otherwise.families;
    }
    for notice in notices.iter().filter(|_| config.families == otherwise.families) {
        log::log!(notice.level(), "{notice}");
    }
    let options = Some(AsOptions::of(&config, otherwise.families));
    Ok(Checked { config, options, own: Some(own), has_no_rules: false })
}

/// How often a machine is recorded whose rules change meanwhile.
const RECORDINGS: usize = 5;

/// Reads all that reports on this network namespace depend on, with the report on all kinds of traffic. What cannot be
/// read is recorded as that.
fn record(host: &impl Host, intent: &Intent, run: &RunOptions) -> (Facts, String) {
    let query = PacketQuery { live: true, ..explain::query(Sender::App) };
    let mut recorded = (Facts::new(), String::new());
    for _ in 0..RECORDINGS {
        let generation = observe::generation().ok();
        recording::start();
        apply::runtime::record_owners();
        // A report is read by what wrote it. A backend may be asked for elsewhere that is not here.
        let reports = [run.backend].into_iter().chain(BackendChoice::ALL).map(|backend| {
            let run = RunOptions { backend, network_namespace: None, cni_mode: false, ..run.clone() };
            let report = explain(host, &query, intent.clone(), &run, &[]);
            let _ = apply::show::rules(host, backend);
            if let Ok(network) = network() {
                let (config, _) = intent.clone().decide(&network);
                let desired = desired(&config, Action::Apply, false);
                let _ = apply::differences::differences(host, &desired, &run);
            }
            report.unwrap_or_else(|failure| failure.to_string())
        });
        let report = reports.reduce(|first, _| first).unwrap_or_default();
        recorded = (recording::finish(), report);
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
pub(super) fn explain(
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
        if run.network_namespace.is_some() {
            log::warn!(
                "the rules of this network namespace are not read: the report is about the options given; add --live"
            );
        }
        for notice in notices {
            log::log!(notice.level(), "{notice}");
        }
    }
    let (config, live) = if query.live {
        let (config, mut live, unread) = live(apply::live::rules(host, run.backend)?, &config, &network);
        live.notices.extend(unread.into_iter().filter(|_| query.destination.is_none()));
        (config, Some(live))
    } else {
        (config, None)
    };
    Ok(explain::report(query, &explain::Pod { config: &config, given, network: &network, live }))
}

/// The live rules and what runs in the pod, with the configuration that they come from, and what cannot be read of the pod.
fn live(
    mut own: Own,
    config: &CaptureConfig,
    network: &Network,
) -> (CaptureConfig, explain::LiveState, Vec<String>) {
    let nearest = own.nearest_config(config);
    own.find_foreign(&nearest);
    let config = nearest.config;
    let (runtime, unread) = apply::runtime::runtime(&own.rules, &config, network);
    (config, explain::LiveState { runtime, ..own.live }, unread)
}

/// The report of `explain --live` about all traffic, as values.
pub(super) fn pod_report(
    host: &impl Host,
    intent: Intent,
    run: &RunOptions,
    given: &[GivenOption],
) -> Result<explain::PodReport, Failure> {
    enter(run)?;
    let network = network()?;
    let current = apply::inspect(host, run.backend, Access::Question)?.current;
    let counters = apply::show::counters(&current);
    let (config, _) = intent.decide(&network);
    let (config, mut live, unread) = live(apply::live::rules_of(&current), &config, &network);
    live.notices.extend(unread);
    let pod = explain::Pod { config: &config, given, network: &network, live: Some(live.clone()) };
    Ok(explain::pod_report(&pod, &live, &counters))
}
