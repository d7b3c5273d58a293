//! `explain`: what happens to a packet, of the options or in a live pod.

use super::interfaces;
use super::namespace::{enter, enter_settled, network, of_fixes};
use crate::apply::live_inspection::LiveInspection;
use crate::apply::{self, Access};
use crate::config::{CaptureConfig, GivenOption, Intent, PacketQuery, Resolved, RunOptions};
use crate::exit::Exit;
use crate::explain;
use crate::facts::NameServers;
use crate::kernel::process::Host;
use crate::model::Network;
use crate::report::Failure;

/// What happens to a packet, and whether that is expected. Nothing is changed, and no privilege is needed but
/// that to enter another namespace.
pub(super) fn explain(
    host: &impl Host,
    query: &PacketQuery,
    intent: Intent,
    run: &RunOptions,
    given: &[GivenOption],
) -> Result<(String, Exit), Failure> {
    if query.live {
        enter_settled(run)?
    } else {
        enter(run)?
    }
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
    let (config, live, is_read) = if query.live {
        let (config, mut live, unread) =
            live(apply::live_inspection::rules(host, run.backend)?, &config, &network, &run.name_servers);
        let is_read = unread.is_empty();
        live.notices.extend(unread);
        (config, Some(live), is_read)
    } else {
        (config, None, true)
    };
    let mut pod = explain::Pod { config: &config, given, network: &network, live };
    if query.destination.is_none() {
        pod.note_missing_listeners();
    }
    let explain::Report { mut text, is_as_expected, has_fixes } = explain::report(query, &pod);
    if has_fixes {
        text.push_str(&of_fixes(run));
    }
    // What was not read may be a problem.
    let is_certain = is_as_expected && (is_read || query.expected.is_none());
    Ok((text, if is_certain { Exit::Done } else { Exit::Different }))
}

/// The live rules and what runs in the pod, with the configuration that they come from, and what cannot be
/// read of the pod.
pub(super) fn live(
    mut own: LiveInspection,
    config: &CaptureConfig,
    network: &Network,
    name_servers: &NameServers,
) -> (CaptureConfig, explain::LiveState, Vec<String>) {
    let nearest = own.nearest_config(config, network);
    own.find_foreign(&nearest);
    let config = nearest.config;
    let (runtime, unread) = apply::pod_runtime::runtime(&own.rules, &config, network);
    let runtime = explain::Runtime { name_servers: name_servers.clone(), ..runtime };
    (config, explain::LiveState { runtime, ..own.live }, unread)
}

/// The report of `explain --live` about all traffic, as values. Nothing is changed.
///
/// # Errors
/// The options ask for something else, or the live state cannot be read.
pub fn pod_report(host: &impl Host, resolved: Resolved) -> Result<explain::PodReport, Failure> {
    let Resolved { run, query, intent, warnings, given, .. } = resolved;
    for warning in &warnings {
        log::warn!("{warning}");
    }
    if !query.is_some_and(|query| query.live && query.destination.is_none()) {
        let what = "a page is about all traffic of a live pod";
        return Err(Failure::new(Exit::Usage, what)
            .hint("istio-iptables explain --live -o html, with --pid or --bundle, without --to"));
    }
    all_traffic(host, intent, &run, &given)
}

/// The report about all traffic of a live pod, as values.
fn all_traffic(
    host: &impl Host,
    intent: Intent,
    run: &RunOptions,
    given: &[GivenOption],
) -> Result<explain::PodReport, Failure> {
    enter_settled(run)?;
    let network = network()?;
    let current = apply::inspect(host, run.backend, Access::Question)?.current;
    let counters = apply::show::counters(&current);
    let (config, _) = intent.decide(&network);
    let own = apply::live_inspection::rules_of(&current);
    let (config, mut live, unread) = live(own, &config, &network, &run.name_servers);
    live.notices.extend(unread);
    let mut pod = explain::Pod { config: &config, given, network: &network, live: Some(live.clone()) };
    pod.note_missing_listeners();
    Ok(explain::pod_report(&pod, &live, &counters))
}
