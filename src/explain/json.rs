//! An answer for programs.

use serde_json::{Map, Value, json};

use super::Pod;
use super::overview::Row;
use super::packet::Packet;
use super::reason::{Cause, Reason};
use super::walk::{Match, Step, Verdict, Walk};
use crate::model::Why;

/// The answer about one packet.
pub(super) fn packet(packet: &Packet, walk: &Walk<'_>, reason: &Reason, pod: &Pod<'_>) -> String {
    let mut object = outcome(walk.verdict, reason);
    object.insert("packet".to_owned(), packet.to_string().into());
    object.insert("rule".to_owned(), walk.decisive().map(step).unwrap_or_default());
    let uncertain = walk.uncertain.iter().filter_map(|at| walk.steps.get(*at));
    object.insert("may_decide".to_owned(), uncertain.map(step).collect());
    object.insert("live".to_owned(), pod.live.is_some().into());
    object.insert("notices".to_owned(), notices(pod).into());
    object.insert("steps".to_owned(), walk.steps.iter().map(step).collect());
    line(&Value::Object(object))
}

/// All kinds of traffic.
pub(super) fn overview(rows: &[Row], pod: &Pod<'_>) -> String {
    let row = |row: &Row| {
        let mut object = outcome(row.verdict, &row.reason);
        object.insert("kind".to_owned(), row.kind.clone().into());
        object.insert("family".to_owned(), row.family.to_string().into());
        object.insert("packet".to_owned(), row.packet.clone().into());
        Value::Object(object)
    };
    line(&json!({
        "live": pod.live.is_some(),
        "notices": notices(pod),
        "traffic": rows.iter().map(row).collect::<Value>(),
    }))
}

fn notices(pod: &Pod<'_>) -> Vec<String> {
    pod.live.as_ref().map(|live| live.notices.clone()).unwrap_or_default()
}

fn outcome(verdict: Verdict, reason: &Reason) -> Map<String, Value> {
    let (name, port) = match verdict {
        Verdict::Captured(port) => ("captured", Some(port.number())),
        Verdict::Dropped => ("dropped", None),
        Verdict::LikeItsConnection => ("like-its-connection", None),
        Verdict::NotCaptured => ("not-captured", None),
        Verdict::Misrouted => ("misrouted", None),
        Verdict::TakenByForeignRule => ("taken-by-foreign-rule", None),
        Verdict::ToProxySocket => ("captured-by-mark", None),
    };
    let mut object = Map::new();
    object.insert("verdict".to_owned(), name.into());
    object.insert("port".to_owned(), port.into());
    object.insert("because".to_owned(), reason.sentence.clone().into());
    object.insert("option".to_owned(), reason.option.as_ref().map(option).unwrap_or_default());
    object
}

fn option(cause: &Cause) -> Value {
    json!({
        "name": cause.key.spec().name,
        "value": cause.given.as_ref().filter(|_| !cause.is_live).map_or(cause.key.spec().default, |(text, _)| text),
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
        "hook": step.hook.name(),
        "table": step.table.name(),
        "chain": step.chain,
        "rule": step.rule.text(),
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
