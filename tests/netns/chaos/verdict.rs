//! What was wrong: every attempt, query and held connection is compared with the options that were in force.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use netlab::Response;

use super::connections::{Attempt, Connections, LostConnection, PassedOn};
use super::dns::{Queries, Query};
use super::runs::{Action, Goal, Step};
use super::timeline::{Expected, InForce, Timeline};
use crate::lab::Outcome;

/// How many failures of one kind and flow are described.
const DESCRIBED: usize = 2;

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A connection or query that had to be captured reached the server itself.
    Leaked,
    /// One that had to be left alone was captured, or arrived at another port of the proxy.
    Misdirected,
    Refused,
    /// Reset or timed out; a query without a response.
    Lost,
    /// An established connection ended, and no run had announced it.
    HeldLost,
    /// Foreign rules, counters, routes or addresses.
    ForeignChanged,
    /// An exit code that a run must not have.
    RunFailed,
    /// A cleanup left something.
    NotCleanedUp,
}

/// One thing that was wrong.
#[derive(Debug)]
struct Failure {
    kind: Kind,
    /// The flow, if it is one.
    subject: &'static str,
    place: String,
    text: String,
}

/// Everything that was counted, over all pods.
#[derive(Debug, Default)]
pub(super) struct Report {
    failures: Vec<Failure>,
    counts: BTreeMap<&'static str, usize>,
}

/// What one pod has seen.
pub(super) struct History<'a> {
    pub(super) episode: usize,
    pub(super) timeline: &'a Timeline,
    pub(super) steps: &'a [Step],
}

impl History<'_> {
    /// The last step that began before `moment`.
    fn step_at(&self, moment: Instant) -> Option<&Step> {
        self.steps.iter().rfind(|step| step.start <= moment)
    }

    /// The last step that ended well before `moment`.
    fn ended_before(&self, moment: Instant) -> Option<&Step> {
        let well = |step: &&Step| step.end <= moment && step.ended.iter().all(|(code, _)| *code == 0);
        self.steps.iter().rfind(well)
    }

    /// Whether a run that was at work between the two moments announced this.
    fn announced(&self, from: Instant, to: Instant, what: impl Fn(&Step) -> bool) -> bool {
        let at_work = |step: &&Step| step.start <= to && step.end >= from;
        self.steps.iter().filter(at_work).any(what)
    }

    fn place(&self, step: Option<&Step>) -> String {
        format!("episode {}, step {}", self.episode, step.map_or(0, |step| step.number))
    }

    /// This step and the two before it.
    fn context(&self, step: Option<&Step>) -> String {
        let Some(step) = step else { return " before the first run".to_owned() };
        let index = self.steps.iter().position(|one| one.number == step.number).unwrap_or(0);
        let recent = &self.steps[index.saturating_sub(2)..=index];
        recent.iter().map(|step| format!("\n    step {}: {}", step.number, step.report())).collect()
    }
}

impl Report {
    /// Adds to a count.
    pub(super) fn count(&mut self, what: &'static str, number: usize) {
        *self.counts.entry(what).or_default() += number;
    }

    /// Something was wrong at `moment`.
    pub(super) fn fail(
        &mut self,
        kind: Kind,
        subject: &'static str,
        history: &History,
        moment: Instant,
        what: &str,
    ) {
        let step = history.step_at(moment);
        let since = step.map(|step| {
            let (start, end) = (step.start, step.end);
            let relative = |base: Instant| {
                if moment >= base { format!("+{:?}", moment - base) } else { format!("-{:?}", base - moment) }
            };
            format!(" ({} after its start, {} of its end)", relative(start), relative(end))
        });
        let text = format!("{subject} {what}{}:{}", since.unwrap_or_default(), history.context(step));
        self.failures.push(Failure { kind, subject, place: history.place(step), text });
    }

    /// No failure so far.
    pub(super) fn is_good(&self) -> bool {
        self.failures.is_empty()
    }

    /// A step has been carried out.
    pub(super) fn judge_step(&mut self, history: &History, step: &Step) {
        self.count(
            match &step.action {
                Action::Whole(Goal::Rules(_)) => "whole runs",
                Action::Whole(Goal::Cleanup) => "cleanups",
                Action::Whole(Goal::KeepingCleanup) => "cleanups that keep connections",
                Action::Kill(..) => "runs killed after a delay",
                Action::KillAtSend(..) => "runs killed at a message to the kernel",
                Action::Interfere(..) => "runs with a failing tool, or killed at a tool call",
                Action::Two(..) => "two runs at once",
            },
            1,
        );
        if !step.ended_as_expected() {
            self.fail(Kind::RunFailed, "run", history, step.end, "exit code");
        }
    }

    /// All connections of a pod.
    pub(super) fn judge_connections(&mut self, history: &History, connections: &Connections) {
        let attempts = connections.attempts.lock().unwrap();
        self.count("new connections", attempts.len());
        attempts.iter().for_each(|attempt| self.judge_attempt(history, attempt));
        let held = connections.held.load(std::sync::atomic::Ordering::Relaxed);
        self.count("held connections", held);
        self.count("lines on held connections", connections.lines.load(std::sync::atomic::Ordering::Relaxed));
        connections.lost.lock().unwrap().iter().for_each(|lost| self.judge_lost(history, lost));
    }

    fn judge_attempt(&mut self, history: &History, attempt: &Attempt) {
        let Attempt { flow, family, start, end, outcome } = attempt;
        let possible = history.timeline.between(*start, *end);
        let expected = Expected::of(flow, *family, &possible);
        let right_ends = |response: &Response| {
            response.original == flow.target(*family) && flow.callers(*family).contains(&response.source.ip())
        };
        let kind = match outcome {
            Outcome::Responded(response)
                if response.server == "proxy"
                    && expected.ports.contains(&response.port)
                    && right_ends(response) =>
            {
                return;
            }
            Outcome::Responded(response) if response.server == flow.server() && expected.direct => return,
            Outcome::Responded(response) if response.server == flow.server() => {
                let announced = |step: &Step| {
                    flow.passing_rule().is_some_and(|rule| step.announces_foreign(*family, rule))
                };
                if history.announced(*start, *end, announced)
                    || history.ended_before(*start).is_some_and(announced)
                {
                    return self.count("past the proxy by a rule that may be foreign, as announced", 1);
                }
                Kind::Leaked
            }
            Outcome::Responded(_) => Kind::Misdirected,
            Outcome::Refused => Kind::Refused,
            Outcome::TimedOut | Outcome::Failed(_)
                if history.announced(*start, *end, Step::announces_resets) =>
            {
                return self.count("new connections reset, as announced", 1);
            }
            Outcome::TimedOut | Outcome::Failed(_) => Kind::Lost,
        };
        let what = format!("{family:?}: {outcome:?} in {:?}, expected {expected:?}", *end - *start);
        self.fail(kind, flow.name, history, *start, &what);
    }

    /// Connections of the proxy to the application under another address, which need the rules of TPROXY.
    pub(super) fn judge_passed_on(&mut self, history: &History, connections: &Connections) {
        for PassedOn { family, mark, start, end, outcome } in connections.passed_on.lock().unwrap().iter() {
            let possible = history.timeline.between(*start, *end);
            let all =
                |options: &InForce| options.as_ref().and_then(|o| o.tproxy_mark(*family)) == Some(*mark);
            if !possible.iter().all(all) {
                self.count("connections with original source while TPROXY came or went", 1);
                continue;
            }
            self.count("connections with original source", 1);
            let right = matches!(outcome, Outcome::Responded(response)
                if response.server == "app" && response.source.ip() == family.guest());
            if !right {
                let what = format!("{family:?}: {outcome:?} in {:?}", *end - *start);
                self.fail(Kind::Lost, "proxy with original source", history, *start, &what);
            }
        }
    }

    fn judge_lost(&mut self, history: &History, lost: &LostConnection) {
        let LostConnection { flow, family, server, opened, last_good, noticed, error } = lost;
        if history.announced(*opened, *noticed, Step::announces_resets) {
            return self.count("held connections reset, as announced", 1);
        }
        let opened = history.place(history.step_at(*opened));
        let what = format!(
            "{family:?}, served by {server}, open since {opened}: {error}, last good {:?} before",
            *noticed - *last_good
        );
        self.fail(Kind::HeldLost, flow.name, history, *noticed, &what);
    }

    /// All queries of a pod.
    pub(super) fn judge_queries(&mut self, history: &History, queries: &Queries) {
        let done = queries.done.lock().unwrap();
        self.count("DNS queries over UDP", done.len());
        done.iter().for_each(|query| self.judge_query(history, queries, query));
    }

    fn judge_query(&mut self, history: &History, queries: &Queries, query: &Query) {
        let expected = query.expected(history.timeline);
        let kind = match query.responder.as_deref() {
            Some("proxy") if !expected.ports.is_empty() => return,
            Some("outside") if expected.direct => return,
            Some("outside") => Kind::Leaked,
            Some(_) => Kind::Misdirected,
            None if query.may_be_lost(history.timeline, queries.end_of_waiting(query)) => {
                return self.count("responses lost where capture of a flow ended", 1);
            }
            None if history.announced(
                query.sent.0,
                queries.end_of_waiting(query),
                Step::announces_lost_responses,
            ) =>
            {
                return self.count("responses lost, as announced", 1);
            }
            None => Kind::Lost,
        };
        let what = format!("{:?}: response of {:?}, expected {expected:?}", query.family, query.responder);
        self.fail(kind, query.flow.name, history, query.sent.0, &what);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, number) in &self.counts {
            writeln!(f, "  {number:>8} {what}")?;
        }
        let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
        self.failures.iter().for_each(|failure| *kinds.entry(failure.kind).or_default() += 1);
        writeln!(f, "  {:>8} failures {kinds:?}", self.failures.len())?;
        let mut subjects: BTreeMap<(Kind, &str), usize> = BTreeMap::new();
        self.failures.iter().for_each(|f| *subjects.entry((f.kind, f.subject)).or_default() += 1);
        for ((kind, subject), number) in subjects {
            writeln!(f, "  {number:>8} {kind:?}: {subject}")?;
        }
        // One of each kind and step: what follows from one cause is described once.
        let mut described: Vec<(Kind, &str, &str)> = Vec::new();
        for failure in &self.failures {
            let this = (failure.kind, failure.place.as_str(), failure.subject);
            let of_kind = described
                .iter()
                .filter(|(kind, _, subject)| (*kind, *subject) == (failure.kind, failure.subject))
                .count();
            if described.contains(&this) || of_kind >= DESCRIBED {
                continue;
            }
            described.push(this);
            let alike = self
                .failures
                .iter()
                .filter(|other| (other.kind, other.place.as_str(), other.subject) == this)
                .count();
            writeln!(f, "\n  {:?}, {} ({alike} alike): {}", failure.kind, failure.place, failure.text)?;
        }
        Ok(())
    }
}
