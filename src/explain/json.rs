//! A report as JSON.

use serde_json::{Map, Value, json};

use super::devices;
use super::packet::Packet;
use super::reason::{Cause, Reason};
use super::routing;
use super::row::Row;
use super::runtime::{self, ProxyPort};
use super::sent_on;
use super::unless::Otherwise;
use super::walk::{Match, Step, Verdict, Walk};
use super::{Connection, LiveState, Pod, RunningProcess};
use crate::finding::{self, Finding};
use crate::model::Why;

/// The report about one packet.
pub(super) fn packet(
    packet: &Packet,
    walk: &Walk<'_>,
    (reason, otherwise): (&Reason, &[Otherwise]),
    problems: &[Finding],
    pod: &Pod<'_>,
) -> String {
    let mut object = outcome(walk.verdict, reason);
    object.insert("packet".to_owned(), packet.to_string().into());
    let behind: Vec<String> =
        sent_on::problems(packet, walk, pod).into_iter().map(|problem| problem.sentence).collect();
    object.insert("problem".to_owned(), (!behind.is_empty()).then(|| behind.join("; ")).into());
    object.insert("problems".to_owned(), finding::as_json(problems));
    object.insert("rule".to_owned(), walk.decisive().map(step).unwrap_or_default());
    let routed = walk.routed.iter().map(|looked| {
        let unsure = looked.lookup.uncertain.iter().map(routing::words);
        json!({ "packet": looked.packet(), "by": looked.words(), "may_decide": unsure.collect::<Vec<_>>() })
    });
    object.insert("routed".to_owned(), routed.collect());
    let otherwise = otherwise.iter().map(|Otherwise { condition, verdict, rule }| {
        let (verdict, port) = name(*verdict);
        json!({ "if": condition, "verdict": verdict, "port": port, "rule": rule })
    });
    object.insert("unless".to_owned(), otherwise.collect());
    let uncertain = walk.uncertain.iter().filter_map(|at| walk.steps.get(*at));
    object.insert("may_decide".to_owned(), uncertain.map(step).collect());
    let outside = devices::may_decide(packet, walk, pod);
    object.insert("may_decide_outside_of_rules".to_owned(), outside.into());
    object.insert("live".to_owned(), pod.live.is_some().into());
    object.insert("notices".to_owned(), notices(pod).into());
    object.insert("steps".to_owned(), walk.steps.iter().map(step).collect());
    line(&Value::Object(object))
}

/// A connection: verdict, reason, option, rule.
pub(super) fn connection(
    verdict: Verdict,
    reason: &Reason,
    decisive: Option<&Step<'_>>,
) -> Map<String, Value> {
    let mut object = outcome(verdict, reason);
    object.insert("rule".to_owned(), decisive.map(step).unwrap_or_default());
    object
}

/// All kinds of traffic.
pub(super) fn overview(rows: &[Row], problems: &[Finding], pod: &Pod<'_>) -> String {
    let row = |row: &Row| {
        let mut object = outcome(row.verdict, &row.reason);
        object.insert("kind".to_owned(), row.kind.clone().into());
        object.insert("family".to_owned(), row.family.to_string().into());
        object.insert("packet".to_owned(), row.packet.clone().into());
        Value::Object(object)
    };
    let mut object = Map::new();
    object.insert("live".to_owned(), pod.live.is_some().into());
    object.insert("notices".to_owned(), notices(pod).into());
    object.insert("traffic".to_owned(), rows.iter().map(row).collect());
    if let Some(live) = &pod.live {
        object.insert("problems".to_owned(), finding::as_json(problems));
        running(&mut object, live, pod);
    }
    line(&Value::Object(object))
}

fn running(object: &mut Map<String, Value>, live: &LiveState, pod: &Pod<'_>) {
    let listener = |found: ProxyPort| {
        json!({
            "for": found.name,
            "family": found.family.to_string(),
            "protocol": found.transport.name(),
            "port": found.port.number(),
            "address": found.listener.map(|listener| listener.address.to_string()),
            "uid": found.listener.map(|listener| listener.uid),
            "problem": found.problem.map(|problem| problem.to_string()),
        })
    };
    let process = |found: &RunningProcess| {
        json!({
            "pid": found.pid,
            "name": found.name,
            "uid": found.uid,
            "gid": found.gid,
            "in_container_of_proxy": found.is_proxy,
        })
    };
    let connection = |found: &Connection| json!({ "local": found.local.to_string(), "remote": found.remote.to_string(), "uid": found.uid });
    let listeners = runtime::proxy_ports(live, pod).into_iter().map(listener).collect();
    let processes = runtime::exempt_processes(live).into_iter().map(process).collect();
    let connections = runtime::older_than_capture(live, pod.config, pod.network);
    object.insert("listeners".to_owned(), listeners);
    object.insert("exempt_processes".to_owned(), processes);
    object.insert("older_connections".to_owned(), connections.into_iter().map(connection).collect());
}

fn notices(pod: &Pod<'_>) -> Vec<String> {
    pod.live.as_ref().map(|live| live.notices.clone()).unwrap_or_default()
}

fn outcome(verdict: Verdict, reason: &Reason) -> Map<String, Value> {
    let (name, port) = name(verdict);
    let mut object = Map::new();
    object.insert("verdict".to_owned(), name.into());
    object.insert("port".to_owned(), port.into());
    object.insert("because".to_owned(), reason.sentence.clone().into());
    object.insert("option".to_owned(), reason.option.as_ref().map(option).unwrap_or_default());
    object
}

/// The name of a verdict, and the proxy's port.
const fn name(verdict: Verdict) -> (&'static str, Option<u16>) {
    match verdict {
        Verdict::Captured(port) => ("captured", Some(port.number())),
        Verdict::Dropped => ("dropped", None),
        Verdict::LikeItsConnection => ("like-its-connection", None),
        Verdict::NotCaptured => ("not-captured", None),
        Verdict::Misrouted => ("misrouted", None),
        Verdict::NoRoute => ("no-route", None),
        Verdict::TakenByForeignRule => ("taken-by-foreign-rule", None),
        Verdict::ToProxySocket => ("captured-by-mark", None),
    }
}

fn option(cause: &Cause) -> Value {
    json!({
        "name": cause.key.spec().name,
        "value": cause.value(),
        "from": cause.given.as_ref().map(|(_, origin)| origin.to_string()),
        "annotation": cause.annotation(),
    })
}

fn step(step: &Step<'_>) -> Value {
    let (matches, mismatch, unknown) = match &step.matches {
        Match::Matches => (Some(true), None, None),
        Match::Mismatch(mismatch) => (Some(false), Some(mismatch), None),
        Match::Maybe(unknown) => (None, None, Some(unknown)),
    };
    json!({
        "hook": step.hook,
        "table": step.table,
        "chain": step.chain,
        "rule": step.rule.rule.words(),
        "foreign": step.rule.is_foreign(),
        "why": step.rule.why.map(Why::slug),
        "matches": matches,
        "mismatch": mismatch,
        "unknown": unknown,
    })
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}
