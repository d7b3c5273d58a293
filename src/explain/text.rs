//! An answer for people.

use std::fmt::Write as _;

use super::Pod;
use super::overview::Row;
use super::packet::Packet;
use super::reason::Reason;
use super::walk::{Match, Step, Verdict, Walk};
use crate::config::CaptureConfig;
use crate::model::{DNS_CAPTURE_PORT, Port};
use crate::text::one_line;

/// Most rules in a row that are printed although they are not for the packet.
const MOST_MISMATCHES: usize = 12;

/// The verdict, its reason, and every rule that was tried.
pub(super) fn packet(packet: &Packet, walk: &Walk<'_>, reason: &Reason, pod: &Pod<'_>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", verdict(walk.verdict, packet, pod.config));
    let _ = writeln!(text, "  because  {}", reason.sentence);
    if let Some(option) = &reason.option {
        let _ = writeln!(text, "  option   {option}");
    }
    if let Some(step) = walk.decisive() {
        let _ =
            writeln!(text, "  rule     {} {} {}", step.table.name(), step.chain, one_line(&step.rule.text()));
    }
    for step in walk.uncertain.iter().filter_map(|at| walk.steps.get(*at)) {
        let (table, chain, text_) = (step.table.name(), step.chain, step.rule.text());
        let rule = one_line(&text_);
        let _ = writeln!(text, "  unless   a rule decides that cannot be evaluated: {table} {chain} {rule}");
    }
    let _ = writeln!(text, "  packet   {packet}");
    for notice in pod.live.iter().flat_map(|live| &live.notices) {
        let _ = writeln!(text, "  note     {}", one_line(notice));
    }
    trace(&mut text, walk);
    text
}

fn trace(text: &mut String, walk: &Walk<'_>) {
    let decided = walk.decisive();
    let place = |step: &Step<'_>| (step.hook, step.table, step.chain.to_owned());
    for group in walk.steps.chunk_by(|one, next| place(one) == place(next)) {
        let Some(first) = group.first() else { continue };
        let _ = writeln!(text, "\n{} {}", first.table.name(), first.chain);
        for run in group.chunk_by(|one, next| is_mismatch(one) == is_mismatch(next)) {
            let hidden = run.len().saturating_sub(MOST_MISMATCHES);
            let is_mismatch = run.first().is_some_and(is_mismatch);
            let shown = if is_mismatch && hidden > 1 { MOST_MISMATCHES } else { run.len() };
            for step in run.iter().take(shown) {
                let (mark, why) = match &step.matches {
                    Match::Mismatch(mismatch) => (' ', mismatch.clone()),
                    Match::Maybe(unknown) => ('?', format!("may match: {unknown}")),
                    Match::Matches if decided.is_some_and(|decided| std::ptr::eq(decided, step)) => {
                        ('>', "matches".to_owned())
                    }
                    Match::Matches => ('*', "matches".to_owned()),
                };
                let _ = writeln!(text, "{mark} {:<64} {}", one_line(&step.rule.text()), one_line(&why));
            }
            if shown < run.len() {
                let _ = writeln!(text, "  ... {} more rules that are not for this packet", run.len() - shown);
            }
        }
    }
}

const fn is_mismatch(step: &Step<'_>) -> bool {
    matches!(step.matches, Match::Mismatch(_))
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
        Verdict::TakenByForeignRule => "not captured: a foreign rule takes it".to_owned(),
        Verdict::Misrouted => {
            "lost: its mark routes it to the pod itself, which has no such connection".to_owned()
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
pub(super) fn overview(rows: &[Row], pod: &Pod<'_>) -> String {
    let mut text = String::new();
    match &pod.live {
        None => {
            let _ = writeln!(text, "{}", pod.config);
        }
        Some(live) => {
            let _ = writeln!(text, "the live rules of this network namespace");
            for notice in live.foreign.iter().chain(&live.notices) {
                let _ = writeln!(text, "note: {}", one_line(notice));
            }
        }
    }
    for family in rows.chunk_by(|one, next| one.family == next.family) {
        let width = family.iter().map(|row| row.kind.len()).max().unwrap_or_default();
        if let Some(row) = family.first() {
            let _ = writeln!(text, "\n{}", row.family);
        }
        for row in family {
            let outcome = match row.verdict {
                Verdict::Captured(port) => format!("captured, {port}"),
                Verdict::Dropped => "dropped".to_owned(),
                Verdict::NotCaptured | Verdict::LikeItsConnection | Verdict::TakenByForeignRule => {
                    "not captured".to_owned()
                }
                Verdict::ToProxySocket => "captured".to_owned(),
                Verdict::Misrouted => "lost".to_owned(),
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
