//! `show`: the live rules of ours with their counters, once or again and again.

use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::apply::show::{Shown, rules};
use crate::config::{BackendChoice, Output};
use crate::explain::Listed;
use crate::kernel::process::Host;
use crate::kernel::terminal;
use crate::parse::Counts;
use crate::report::Failure;
use crate::text::one_line;

/// The pause between two lists.
const INTERVAL: Duration = Duration::from_secs(1);

/// The list of rules; with `is_watched`, one list after another is printed meanwhile.
pub(super) fn show(
    host: &impl Host,
    choice: BackendChoice,
    output: Output,
    is_watched: bool,
    paint: &dyn Fn(String) -> String,
) -> Result<String, Failure> {
    if is_watched {
        return watch(host, choice, output, paint).map(|()| String::new());
    }
    Ok(formatted(&rules(host, choice)?, None, output))
}

/// Prints the rules with their rates again and again, until standard output cannot be written to; `paint`
/// gives text its colours.
fn watch(
    host: &impl Host,
    choice: BackendChoice,
    output: Output,
    paint: &dyn Fn(String) -> String,
) -> Result<(), Failure> {
    let mut before: Option<(Instant, Vec<Shown>)> = None;
    loop {
        let now = Instant::now();
        let shown = rules(host, choice)?;
        let earlier = before.as_ref().map(|(at, shown)| (now.duration_since(*at), shown.as_slice()));
        let text = paint(formatted(&shown, earlier, output));
        terminal::show(&text, output == Output::Text).map_err(|error| Failure::no_output(&error))?;
        before = Some((now, shown));
        std::thread::sleep(INTERVAL);
    }
}

/// Packets in a second, rounded to tenths. An integer: what formats numbers with a fraction would be five
/// kilobytes of the program.
#[derive(Clone, Copy)]
struct Rate {
    tenths: u64,
}

impl Rate {
    fn as_json(self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a rate is rounded in any case")]
        let tenths = self.tenths as f64;
        tenths / 10.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.tenths / 10, self.tenths % 10)
    }
}

/// The output of `show`; `earlier` is an earlier list with the time since then.
fn formatted(shown: &[Shown], earlier: Option<(Duration, &[Shown])>, output: Output) -> String {
    let rate = |rule: &Shown| {
        let (time, earlier) = earlier?;
        let before = earlier.iter().find(|before| before.is_same(rule))?.counts?.packets;
        let packets = rule.counts?.packets.saturating_sub(before);
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        Some(Rate { tenths: packets.saturating_mul(10_000) / millis })
    };
    match output {
        Output::Json => {
            let rules: Value = shown.iter().map(|rule| show_json(rule, rate(rule))).collect();
            format!("{}\n", json!({ "rules": rules }))
        }
        Output::Text => show_text(shown, earlier.is_some(), rate),
    }
}

fn show_text(shown: &[Shown], has_rates: bool, rate: impl Fn(&Shown) -> Option<Rate>) -> String {
    let mut text = String::new();
    if shown.is_empty() {
        text.push_str("no capture rule is live\n");
    }
    let place = |rule: &Shown| (rule.backend, rule.family, rule.rule.table, rule.rule.chain.clone());
    for (number, chain) in shown.chunk_by(|one, next| place(one) == place(next)).enumerate() {
        let Some(Shown { backend, family, rule: first, .. }) = chain.first() else { continue };
        let rate_title = if has_rates { "  packets/s" } else { "" };
        let empty = if number == 0 { "" } else { "\n" };
        let _ = writeln!(text, "{empty}{} {} ({family}, {backend})", first.table.name(), first.chain);
        let _ = writeln!(text, "     packets        bytes{rate_title}");
        for shown in chain {
            let Listed { text: words, more, why, .. } = &shown.rule;
            let counts = |of: fn(Counts) -> u64| {
                shown.counts.map_or_else(|| "?".to_owned(), |counts| of(counts).to_string())
            };
            let (packets, bytes) = (counts(|counts| counts.packets), counts(|counts| counts.bytes));
            let rate = rate(shown).map_or_else(String::new, |rate| format!("  {:>9}", rate.to_string()));
            let rate = if has_rates { format!("{rate:>11}") } else { rate };
            let never = if shown.counts.is_some_and(|counts| counts.packets == 0) { '!' } else { ' ' };
            let more = if *more > 0 { format!(" and {more} more") } else { String::new() };
            let _ = writeln!(text, "{never}{packets:>11} {bytes:>12}{rate}  {}{more}", one_line(words));
            let _ = writeln!(text, "{:28}{}: {}", "", why.slug(), why.sentence());
        }
    }
    if !shown.is_empty() {
        text.push_str("\n! has matched no packet. nat rules count the first packet of each connection.\n");
    }
    text
}

fn show_json(Shown { backend, family, rule, counts }: &Shown, rate: Option<Rate>) -> Value {
    json!({
        "backend": backend.to_string(),
        "family": family.to_string(),
        "table": rule.table.name(),
        "chain": rule.chain,
        "rule": rule.text,
        "more": rule.more,
        "why": rule.why.slug(),
        "reason": rule.why.sentence(),
        "packets": counts.map(|counts| counts.packets),
        "bytes": counts.map(|counts| counts.bytes),
        "packets_per_second": rate.map(Rate::as_json),
        "never_matched": counts.map(|counts| counts.packets == 0),
    })
}
