//! A report as text.

use std::fmt::Write as _;

use super::devices;
use super::packet::Packet;
use super::reason::Reason;
use super::routing;
use super::row::Row;
use super::runtime::{self, ProxyPort};
use super::sent_on;
use super::unless::Otherwise;
use super::walk::{Match, Step, Verdict, Walk};
use super::{Connection, LiveState, Pod, RunningProcess};
use crate::finding::{self, Finding, Subject};
use crate::model::{DNS_PORT, Transport, Why};
use crate::ordered::Ordered as _;
use crate::text::{WIDEST, first_line, one_line};

/// Most rules in a row that are printed although they are not for the packet.
const MOST_MISMATCHES: usize = 12;

/// What no rule captures.
pub const NEVER_CAPTURED: &str = "Never captured: UDP other than DNS queries, ICMP and other protocols, raw sockets, and every process that \
                                  runs with a uid or gid of the proxy.";

/// What a report without `--live` is about.
const OF_OPTIONS: &str = "these are the rules of the options; --live follows those of this network namespace";

/// The verdict, its reason, and every rule that was tried.
pub(super) fn packet(
    packet: &Packet,
    walk: &Walk<'_>,
    (reason, otherwise): (&Reason, &[Otherwise]),
    problems: &[Finding],
    pod: &Pod<'_>,
) -> String {
    let mut text = String::new();
    begin(&mut text, &headline(packet, walk, reason, pod), problems);
    // Writing to a String cannot fail.
    match walk.verdict {
        Verdict::NotCaptured => {
            let _ = writeln!(text, "  goes to  {}, not to the proxy", packet.destination);
        }
        Verdict::Dropped | Verdict::NoRoute | Verdict::TakenByForeignRule => {}
        Verdict::Captured(_) | Verdict::LikeItsConnection | Verdict::Misrouted | Verdict::ToProxySocket => {
            let _ = writeln!(text, "  because  {}", reason.sentence);
        }
    }
    if let Some(option) = &reason.option {
        let _ = writeln!(text, "  option   {option}");
    }
    if let Some(step) = walk.decisive() {
        let _ = writeln!(text, "  rule     {}", step.words());
    }
    for step in walk.uncertain.iter().filter_map(|at| walk.steps.get(*at)) {
        let _ = writeln!(text, "  unless   a rule decides that cannot be evaluated: {}", step.words());
    }
    let policies = walk.routed.iter().flat_map(|looked| &looked.lookup.uncertain).map(routing::words);
    for rule in policies.into_set() {
        let _ = writeln!(text, "  unless   a policy rule decides that cannot be evaluated: {rule}");
    }
    for other in devices::may_decide(packet, walk, pod) {
        let _ = writeln!(text, "  unless   {other}");
    }
    for Otherwise { condition, verdict, rule } in otherwise {
        let rule = rule.as_ref().map_or_else(String::new, |rule| format!(" ({})", one_line(rule)));
        let _ = writeln!(text, "  unless   {condition}: {}{rule}", verdict.outcome());
    }
    let _ = writeln!(text, "  packet   {packet}");
    notes_of_packet(&mut text, packet, walk, pod);
    if pod.live.is_none() {
        let _ = writeln!(text, "  note     {OF_OPTIONS}");
    }
    for notice in pod.live.iter().flat_map(|live| &live.notices) {
        let _ = writeln!(text, "  note     {}", one_line(notice));
    }
    trace(&mut text, walk);
    for looked in &walk.routed {
        let words = looked.words().unwrap_or_else(|| "no route".to_owned());
        let _ = writeln!(text, "\nrouted {}\n> {words}", looked.packet());
    }
    text
}

/// What may be other than it was meant.
fn notes_of_packet(text: &mut String, packet: &Packet, walk: &Walk<'_>, pod: &Pod<'_>) {
    let is_own = pod.network.addresses.iter().any(|own| own.address == packet.destination.ip());
    if is_own && !packet.is_inbound && !packet.destination.ip().is_loopback() {
        text.push_str(
            "  note     this is a call of the pod to its own address; for a client, add --from outside\n",
        );
    }
    if packet.transport == Transport::Tcp && packet.destination.port() == DNS_PORT.number() {
        text.push_str(
            "  note     this is a query over TCP; for one over UDP, as most are, add --proto udp\n",
        );
    }
    let decides = walk.decisive().and_then(|step| step.rule.why);
    if packet.transport == Transport::Tcp
        && matches!(decides, Some(Why::ProxyTraffic | Why::ExcludedOwnerGroup))
    {
        text.push_str(
            "  note     of an MPTCP connection, only the first subflow has an owner: others are captured\n",
        );
    }
}

/// The verdict, with the problems that it does not name.
fn begin(text: &mut String, whole: &str, problems: &[Finding]) {
    let (short, rest) = first_line(whole);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{short}");
    if !rest.is_empty() {
        let _ = writeln!(text, "  more     {rest}");
    }
    let is_said = |about: &Subject| match about {
        Subject::Rule(rule) => whole.contains(&*one_line(&rule.words)),
        Subject::Condition(condition) => whole.contains(condition),
        Subject::Chain { .. }
        | Subject::Policy { .. }
        | Subject::Interface(_)
        | Subject::PolicyRule(_)
        | Subject::Route(_) => false,
    };
    for finding in problems {
        let cause = if finding.about.iter().any(is_said) {
            String::new()
        } else {
            format!(": {}", one_line(&finding.cause))
        };
        let _ = writeln!(text, "  problem  {}{cause}", finding.problem.spec().id);
        let _ = writeln!(text, "  fix      {}", finding.fix());
    }
}

fn trace(text: &mut String, walk: &Walk<'_>) {
    let decided = walk.decisive();
    let place = |step: &Step<'_>| (step.hook, step.table.to_owned(), step.chain.to_owned());
    for group in walk.steps.chunk_by(|one, next| place(one) == place(next)) {
        let Some(first) = group.first() else { continue };
        let _ = writeln!(text, "\n{} {}", first.table, first.chain);
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
                let _ = writeln!(text, "{mark} {:<64} {}", one_line(&step.rule.rule.words()), one_line(&why));
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

/// What becomes of the packet, and why if it is not what capture is for.
pub(super) fn headline(packet: &Packet, walk: &Walk<'_>, reason: &Reason, pod: &Pod<'_>) -> String {
    let sentence = &reason.sentence;
    let problems = sent_on::problems(packet, walk, pod);
    let problem = problems.iter().map(|problem| problem.sentence.as_str()).collect::<Vec<_>>().join("; ");
    let is_certain = problems.iter().any(|problem| problem.is_certain);
    let harm = if is_certain { "it fails" } else { "it may fail" };
    let verdict = match walk.verdict {
        Verdict::Captured(port) => {
            let name = runtime::port_name(port, pod.config);
            let name = name.map_or_else(|| "port".to_owned(), |name| format!("the proxy's {name} port"));
            Headline { verdict: format!("captured: goes to {name} {port}"), but: ", but ", problem, harm }
        }
        Verdict::NotCaptured | Verdict::TakenByForeignRule => {
            Headline { verdict: format!("not captured: {sentence}"), but: "; and ", problem, harm }
        }
        Verdict::Dropped => Headline::plain(format!("dropped: {sentence}")),
        Verdict::LikeItsConnection => {
            Headline::plain("as its connection: ask about the first packet (--state new)".to_owned())
        }
        Verdict::Misrouted if problem.is_empty() => Headline::plain(format!("lost: {sentence}")),
        Verdict::Misrouted => Headline::plain(format!("lost: {problem}")),
        Verdict::NoRoute => Headline::plain(format!("no route: {sentence}")),
        Verdict::ToProxySocket => {
            Headline::plain("captured: its mark routes it to the proxy's socket".to_owned())
        }
    };
    let is_captured = matches!(walk.verdict, Verdict::Captured(_));
    let foreign = walk.decisive().filter(|step| is_captured && step.rule.is_foreign());
    let unless = unless(packet, walk, pod);
    let link = if verdict.problem.is_empty() && unless.is_empty() { "" } else { ";" };
    let by = foreign.map_or_else(String::new, |step| format!("{link} by a foreign rule: {}", step.words()));
    format!("{}{unless}{by}", verdict.text())
}

/// What may decide instead.
fn unless(packet: &Packet, walk: &Walk<'_>, pod: &Pod<'_>) -> String {
    let rule = walk.uncertain.first().and_then(|at| walk.steps.get(*at));
    let others = match walk.uncertain.len().saturating_sub(1) {
        0 => String::new(),
        others => format!(" (or one of {others} more)"),
    };
    let policy = || walk.routed.iter().flat_map(|looked| &looked.lookup.uncertain).next();
    match (rule, policy()) {
        (Some(step), _) => {
            let (table, chain, rule) = (step.table, step.chain, step.rule.shown());
            format!("; unless a foreign rule in {table} {chain} decides: {rule}{others}")
        }
        (None, Some(tried)) => format!("; unless a policy rule decides: {}", routing::words(tried)),
        (None, None) => {
            let other = devices::may_decide(packet, walk, pod);
            other.first().map_or_else(String::new, |other| format!("; unless {other}"))
        }
    }
}

/// A verdict with what is wrong behind it.
struct Headline {
    verdict: String,
    /// What links both.
    but: &'static str,
    /// Empty if nothing is wrong.
    problem: String,
    harm: &'static str,
}

impl Headline {
    const fn plain(verdict: String) -> Self {
        Self { verdict, but: "", problem: String::new(), harm: "" }
    }

    /// Where the problem does not fit into the first line, its harm comes before it, or before all details.
    fn text(&self) -> String {
        let Self { verdict, but, problem, harm } = self;
        if problem.is_empty() {
            return verdict.clone();
        }
        let whole = format!("{verdict}{but}{problem}");
        if whole.chars().count() <= WIDEST {
            return whole;
        }
        match verdict.split_once(": ") {
            Some((name, why)) if verdict.chars().count() > WIDEST / 2 => {
                format!("{name}, and {harm}: {why}{but}{problem}")
            }
            Some(_) | None => format!("{verdict}{but}{harm}: {problem}"),
        }
    }
}

/// The first line about a live pod.
pub(super) fn verdict(problems: &[Finding]) -> String {
    let none = || "the live rules of this network namespace: no problem found".to_owned();
    finding::verdict(problems).unwrap_or_else(none)
}

/// What else may decide, and is none of the problems.
pub(super) fn notes<'a>(live: &'a LiveState, problems: &'a [Finding]) -> impl Iterator<Item = &'a str> {
    let is_named = |notice: &&str| problems.iter().any(|problem| problem.to_string() == *notice);
    live.notices.iter().map(String::as_str).filter(move |notice| !is_named(notice))
}

/// One line for each kind of traffic.
pub(super) fn overview(rows: &[Row], problems: &[Finding], pod: &Pod<'_>) -> String {
    let mut text = String::new();
    let list = finding::list(problems);
    match &pod.live {
        None => {
            let _ = writeln!(text, "{}", pod.config.verdict());
            for part in pod.config.parts() {
                let _ = writeln!(text, "  {part}");
            }
            let _ = writeln!(text, "note: {OF_OPTIONS}");
        }
        Some(live) => {
            let _ = writeln!(text, "{}", verdict(problems));
            text.push_str(&list);
            for (number, notice) in notes(live, problems).enumerate() {
                let _ = writeln!(text, "{}note: {}", if number == 0 { "\n" } else { "" }, one_line(notice));
            }
        }
    }
    for family in rows.chunk_by(|one, next| one.family == next.family) {
        let width = family.iter().map(|row| row.kind.len()).max().unwrap_or_default();
        if let Some(row) = family.first() {
            let _ = writeln!(text, "\n{}", row.family);
        }
        for row in family {
            let outcome = row.verdict.outcome();
            let mark = if row.is_unexpected() { '!' } else { ' ' };
            let _ = writeln!(text, "{mark} {:<width$}  {outcome:<15}  {}", row.kind, row.reason.sentence);
        }
    }
    if let Some(live) = &pod.live {
        running(&mut text, live, pod);
    }
    let _ = writeln!(text, "\n{NEVER_CAPTURED}");
    text
}

/// What runs in the pod, as far as it matters for capture.
fn running(text: &mut String, live: &LiveState, pod: &Pod<'_>) {
    let ports = runtime::proxy_ports(live, pod);
    if !ports.is_empty() {
        text.push_str("\nListeners of the proxy\n");
    }
    for ProxyPort { name, transport, port, family, listener, problem } in ports {
        let (transport, family) = (transport.name().to_uppercase(), family.to_string());
        let state = listener
            .map_or_else(|| "none".to_owned(), |found| format!("{}, uid {}", found.address, found.uid));
        let mark = if problem.is_some() { '!' } else { ' ' };
        let _ = writeln!(text, "{mark} {name:<8}  {family} {transport} {port:<5}  {state}");
    }
    let processes = runtime::exempt_processes(live);
    if !processes.is_empty() {
        text.push_str(
            "\nProcesses with a uid or gid of the proxy: not captured, unless they are the proxy\n",
        );
    }
    for RunningProcess { pid, name, uid, gid, is_proxy } in processes {
        let other = if *is_proxy == Some(false) { ", in another container than the proxy" } else { "" };
        let _ = writeln!(text, "  {pid} {}, uid {uid}, gid {gid}{other}", one_line(name));
    }
    let connections = runtime::older_than_capture(live, pod.config, pod.network);
    if !connections.is_empty() {
        text.push_str("\nConnections that are not captured, since they began before capture\n");
    }
    for Connection { local, remote, uid } in connections {
        let _ = writeln!(text, "  {local} with {remote}, uid {uid}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first line, and the whole verdict.
    fn first_and_whole(verdict: &str, but: &'static str, problem: &str) -> (String, String) {
        let headline =
            Headline { verdict: verdict.to_owned(), but, problem: problem.to_owned(), harm: "it fails" };
        (first_line(&headline.text()).0, headline.text())
    }

    #[test]
    fn harm_is_in_the_first_line_however_long_the_cause_is() {
        let cause = "the proxy's replies do not arrive: a foreign rule in filter OUTPUT decides: -m comment --comment \
                     \"no replies of the proxy to the clients of this pod\" -j DROP";
        let captured = "captured: goes to the proxy's outbound port 15001";
        let foreign =
            "not captured: a foreign rule in nat PREROUTING decides: -p tcp -m tcp --dport 80 -j ACCEPT";
        for (verdict, but, begins) in [
            (
                captured,
                ", but ",
                "captured: goes to the proxy's outbound port 15001, but it fails: the proxy's ",
            ),
            (foreign, "; and ", "not captured, and it fails: a foreign rule in nat PREROUTING decides: "),
        ] {
            let (line, whole) = first_and_whole(verdict, but, cause);
            assert!(line.starts_with(begins) && line.chars().count() <= WIDEST, "{line}");
            assert!(whole.contains(cause), "{whole}");
            assert!(whole.contains(verdict.split_once(": ").expect("a reason").1), "{whole}");
        }
    }

    #[test]
    fn a_cause_that_fits_needs_no_other_words() {
        let (line, whole) =
            first_and_whole("captured: goes to port 15001", ", but ", "nothing listens there");
        assert_eq!(line, "captured: goes to port 15001, but nothing listens there");
        assert_eq!(line, whole);
    }
}
