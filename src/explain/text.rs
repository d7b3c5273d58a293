//! An answer for people.

use std::fmt::{self, Write as _};

use super::overview::Row;
use super::packet::Packet;
use super::reason::Reason;
use super::walk::{Step, Verdict, Walk};
use crate::config::CaptureConfig;
use crate::model::{DNS_CAPTURE_PORT, Port};

/// Most rules in a row that are printed although they are not for the packet.
const MOST_MISMATCHES: usize = 12;

/// The verdict, its reason, and every rule that was tried.
pub(super) fn packet(packet: &Packet, walk: &Walk<'_>, reason: &Reason, config: &CaptureConfig) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", verdict(walk.verdict, packet, config));
    let _ = writeln!(text, "  because  {}", reason.sentence);
    if let Some(option) = &reason.option {
        let _ = writeln!(text, "  option   {option}");
    }
    if let Some(step) = decisive(walk) {
        let _ = writeln!(text, "  rule     {} {}", Place(step), step.rule.statement);
    }
    let _ = writeln!(text, "  packet   {packet}");
    trace(&mut text, walk);
    text
}

fn decisive<'a, 'b>(walk: &'b Walk<'a>) -> Option<&'b Step<'a>> {
    let rule = walk.decided_by?;
    walk.steps.iter().find(|step| std::ptr::eq(step.rule, rule))
}

fn trace(text: &mut String, walk: &Walk<'_>) {
    let decided = decisive(walk).map(|step| step.rule);
    for group in walk.steps.chunk_by(|one, next| Place(one) == Place(next)) {
        let Some(first) = group.first() else { continue };
        let _ = writeln!(text, "\n{}", Place(first));
        for run in group.chunk_by(|one, next| one.mismatch.is_some() == next.mismatch.is_some()) {
            let hidden = run.len().saturating_sub(MOST_MISMATCHES);
            let is_mismatch = run.first().is_some_and(|step| step.mismatch.is_some());
            let shown = if is_mismatch && hidden > 1 { MOST_MISMATCHES } else { run.len() };
            for step in run.iter().take(shown) {
                let mark = match &step.mismatch {
                    Some(_) => ' ',
                    None if decided.is_some_and(|rule| std::ptr::eq(rule, step.rule)) => '>',
                    None => '*',
                };
                let why = step.mismatch.as_deref().unwrap_or("matches");
                let _ = writeln!(text, "{mark} {:<64} {why}", step.rule.statement.to_string());
            }
            if shown < run.len() {
                let _ = writeln!(text, "  ... {} more rules that are not for this packet", run.len() - shown);
            }
        }
    }
}

/// Table, chain and hook of a step.
#[derive(PartialEq)]
struct PlaceOf(crate::model::Hook, crate::model::Table, Option<crate::model::Chain>);

#[allow(non_snake_case, reason = "reads as a constructor")]
const fn Place(step: &Step<'_>) -> PlaceOf {
    PlaceOf(step.hook, step.table, step.chain)
}

impl fmt::Display for PlaceOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(hook, table, chain) = self;
        match chain {
            Some(chain) => write!(f, "{} {}", table.name(), chain.name()),
            None => write!(f, "{} {}", table.name(), hook.name()),
        }
    }
}

/// What becomes of the packet, in a sentence.
fn verdict(verdict: Verdict, packet: &Packet, config: &CaptureConfig) -> String {
    match verdict {
        Verdict::Captured(port) => format!("captured: goes to {} {port}", port_name(port, config)),
        Verdict::Dropped => "dropped".to_owned(),
        Verdict::NotCaptured => format!("not captured: goes to {}, not to the proxy", packet.destination),
        Verdict::LikeItsConnection => {
            "as its connection: ask about the first packet (--state new)".to_owned()
        }
        Verdict::ToProxySocket => "captured: its mark routes it to the proxy's socket".to_owned(),
    }
}

fn port_name(port: Port, config: &CaptureConfig) -> &'static str {
    match port {
        port if port == config.traffic.ports.outbound => "the proxy's outbound port",
        port if port == config.traffic.ports.inbound => "the proxy's inbound port",
        DNS_CAPTURE_PORT => "the proxy's DNS port",
        _ => "port",
    }
}

/// One line for each kind of traffic.
pub(super) fn overview(rows: &[Row], config: &CaptureConfig) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{config}");
    for family in rows.chunk_by(|one, next| one.family == next.family) {
        let width = family.iter().map(|row| row.kind.len()).max().unwrap_or_default();
        if let Some(row) = family.first() {
            let _ = writeln!(text, "\n{}", row.family);
        }
        for row in family {
            let outcome = match row.verdict {
                Verdict::Captured(port) => format!("captured, {port}"),
                Verdict::Dropped => "dropped".to_owned(),
                Verdict::NotCaptured | Verdict::LikeItsConnection => "not captured".to_owned(),
                Verdict::ToProxySocket => "captured".to_owned(),
            };
            let _ = writeln!(text, "  {:<width$}  {outcome:<15}  {}", row.kind, row.reason.sentence);
        }
    }
    text.push_str(
        "\nNever captured: UDP other than DNS queries, ICMP and other protocols, raw sockets, and every process that \
         runs with a uid or gid of the proxy.\n",
    );
    text
}
