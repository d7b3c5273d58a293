//! An answer for programs.

use serde_json::{Map, Value, json};

use super::overview::Row;
use super::packet::Packet;
use super::reason::{Cause, Reason};
use super::walk::{Step, Verdict, Walk};

/// The answer about one packet.
pub(super) fn packet(packet: &Packet, walk: &Walk<'_>, reason: &Reason) -> String {
    let mut object = outcome(walk.verdict, reason);
    object.insert("packet".to_owned(), packet.to_string().into());
    let decided = walk.decided_by.map(|rule| {
        let step = walk.steps.iter().find(|step| std::ptr::eq(step.rule, rule));
        step.map(self::step)
    });
    object.insert("rule".to_owned(), decided.flatten().unwrap_or_default());
    object.insert("steps".to_owned(), walk.steps.iter().map(step).collect());
    line(&Value::Object(object))
}

/// All kinds of traffic.
pub(super) fn overview(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let mut object = outcome(row.verdict, &row.reason);
        object.insert("kind".to_owned(), row.kind.clone().into());
        object.insert("family".to_owned(), row.family.to_string().into());
        object.insert("packet".to_owned(), row.packet.clone().into());
        Value::Object(object)
    };
    line(&json!({ "traffic": rows.iter().map(row).collect::<Value>() }))
}

fn outcome(verdict: Verdict, reason: &Reason) -> Map<String, Value> {
    let (name, port) = match verdict {
        Verdict::Captured(port) => ("captured", Some(port.number())),
        Verdict::Dropped => ("dropped", None),
        Verdict::LikeItsConnection => ("like-its-connection", None),
        Verdict::NotCaptured => ("not-captured", None),
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
        "value": cause.given.as_ref().map_or(cause.key.spec().default, |(text, _)| text),
        "from": cause.given.as_ref().map(|(_, origin)| origin.to_string()),
        "annotation": cause.annotation(),
    })
}

fn step(step: &Step<'_>) -> Value {
    json!({
        "hook": step.hook.name(),
        "table": step.table.name(),
        "chain": step.chain.map_or(step.hook.name(), |chain| chain.name()),
        "rule": step.rule.statement.to_string(),
        "why": step.rule.why.slug(),
        "matches": step.mismatch.is_none(),
        "mismatch": step.mismatch,
    })
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}
