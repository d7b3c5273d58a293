//! One kind of traffic, by one packet: what becomes of it, and what is wrong with that.

use super::egress::is_egress_filter;
use super::fix::{self, Fix};
use super::packet::{Packet, Process};
use super::reason::Reason;
use super::replies::{self, ReplyProblem};
use super::rules::Rules;
use super::unserved::{forwarded_behind, unserved};
use super::walk::{Sent, Step, Verdict, Walk};
use super::{LiveState, Pod};
use crate::finding::{self, Finding, Subject};
use crate::model::{Family, Transport};

/// The fix of a problem in a report that has the rules, if no command is known.
const ON_ITS_WAY: &str = "the rules below are those that it meets: correct what the cause names";

/// One kind of traffic.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name of this kind of traffic.
    pub kind: String,
    /// The family of the packets.
    pub family: Family,
    /// A packet of it.
    pub packet: String,
    /// Who sends it.
    pub sender: Side,
    /// What becomes of the packet.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The options of `explain` that ask about it.
    pub question: String,
    /// What is wrong with it in a live pod.
    pub(super) problems: Vec<Problem>,
    /// Whether it is captured for a port of the app on which nothing listens.
    pub is_unserved: bool,
}

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A process of the app.
    App,
    /// A client outside of the pod.
    Outside,
    /// The proxy.
    Proxy,
}

/// What is wrong with a packet.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) kind: finding::Problem,
    /// As in `is lost: ...`.
    pub(super) sentence: String,
    /// What causes it, and those rules that lead to it.
    pub(super) about: Vec<Subject>,
    /// Whether a rule that causes it is for an owner.
    pub(super) is_of_owner: bool,
    /// Whether the connection is sure to end by a foreign rule.
    pub(super) ends_by_foreign_rule: bool,
    /// Whether it is captured, and sure to end by the policy of a foreign chain.
    pub(super) ends_by_policy: bool,
    /// Whether it is sure to end by a policy rule or a route that no run writes.
    pub(super) ends_by_routing: bool,
    /// Whether it is sure to happen.
    pub(super) is_certain: bool,
    /// Whether it is sure to end by a socket of the proxy.
    pub(super) ends_at_proxy: bool,
    /// Whether the rule is for calls of servers, and no process of the pod listens on the port.
    pub(super) is_of_egress: bool,
    /// The command that mends it, if that is no rule of `about`.
    pub(super) fix: Option<Fix>,
}

impl Problem {
    /// What may happen by these causes, of which one is a rule for an owner or not.
    fn new(kind: finding::Problem, sentence: String, (about, is_of_owner): (Vec<Subject>, bool)) -> Self {
        Self {
            kind,
            sentence,
            about,
            is_of_owner,
            ends_by_foreign_rule: false,
            ends_by_policy: false,
            ends_by_routing: false,
            is_certain: false,
            ends_at_proxy: false,
            is_of_egress: false,
            fix: None,
        }
    }

    /// Whether one report is enough: the words are the same, or the same rules end both packets.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_lost = |problem: &Self| {
            problem.kind == finding::Problem::TrafficLost
                && problem.ends_by_foreign_rule
                && !problem.ends_at_proxy
        };
        let is_routed = |problem: &Self| problem.kind == finding::Problem::PolicyRouting;
        let are_alike = is_lost(self) && is_lost(other) || is_routed(self) && is_routed(other);
        self.sentence == other.sentence || are_alike && self.about == other.about
    }

    /// The finding with these words. Without a command that mends it, the fix is the `question` about the
    /// packet, unless that is what was asked.
    pub(super) fn finding(&self, row: &Row, cause: &str, question: Option<&str>) -> Finding {
        let finding = Finding::new(self.kind, cause).about(self.about.clone()).family(row.family);
        if let Some(fix) = self.fix.as_ref().filter(|fix| fix.precedes_removal) {
            return finding.subject(fix.command.as_str()).fixed_in(fix.table.clone());
        }
        let has_removal = self
            .about
            .iter()
            .any(|about| matches!(about, Subject::Rule(_) | Subject::PolicyRule(_) | Subject::Route(_)));
        if has_removal {
            return finding;
        }
        let asks = |question| format!("`istio-iptables explain --live{question}` shows the rules on its way");
        let table = self.fix.as_ref().and_then(|fix| fix.table.clone());
        let fix = self.fix.as_ref().map(|fix| fix.command.clone()).or_else(|| question.map(asks));
        finding.subject(fix.unwrap_or_else(|| ON_ITS_WAY.to_owned())).fixed_in(table)
    }
}

impl Row {
    pub(super) fn of(kind: String, packet: &Packet, walk: &Walk<'_>, reason: &Reason, pod: &Pod<'_>) -> Self {
        let (family, verdict) = (packet.family(), walk.verdict);
        let live = pod.live.as_ref();
        let problems = live.map(|live| problems(packet, (walk, reason), live, pod)).unwrap_or_default();
        let is_unserved = live.is_some_and(|live| {
            let is_expected = packet.is_inbound
                && packet.transport == Transport::Tcp
                && pod.is_port_of_app(packet.destination.port());
            is_expected && unserved(packet, walk, live, pod).is_some()
        });
        let sender = sender(packet, pod);
        let (packet, question) = (packet.to_string(), question(packet, sender));
        Self {
            kind,
            family,
            packet,
            sender,
            verdict,
            reason: reason.clone(),
            question,
            problems,
            is_unserved,
        }
    }

    /// Whether something is wrong with it.
    #[must_use]
    pub const fn is_unexpected(&self) -> bool {
        !self.problems.is_empty() || self.is_unserved
    }
}

/// Most packets for foreign rules in a table.
const MOST_PROBES: usize = 8;

/// Adds to the kinds of traffic of each family the packets for foreign rules that show a problem which the
/// usual kind of that sender, the first one, does not have.
pub(super) fn add_probes(rows: &mut Vec<Row>, probes: &[Row]) {
    let mut added: Vec<&Row> = Vec::new();
    for probe in probes {
        let is_of_both = |row: &&Row| (row.family, row.sender) == (probe.family, probe.sender);
        let known = rows.iter().find(is_of_both).into_iter();
        let known: Vec<&Row> = known.chain(added.iter().copied().filter(is_of_both)).collect();
        let is_shown = |problem: &Problem| {
            let mut others = known.iter().flat_map(|row| &row.problems);
            problem.is_of_egress || others.any(|other| other.is_same(problem))
        };
        if added.len() < MOST_PROBES && !probe.problems.iter().all(is_shown) {
            added.push(probe);
        }
    }
    for probe in added {
        let at = rows.iter().rposition(|row| row.family <= probe.family).map_or(0, |last| last + 1);
        rows.insert(at, probe.clone());
    }
}

fn sender(packet: &Packet, pod: &Pod<'_>) -> Side {
    match packet.process {
        Some(process) if process == pod.proxy() => Side::Proxy,
        None if packet.is_inbound => Side::Outside,
        Some(_) | None => Side::App,
    }
}

/// The options that ask about a packet.
fn question(packet: &Packet, sender: Side) -> String {
    let from = match sender {
        Side::Proxy => " --from proxy",
        Side::Outside => " --from outside",
        Side::App => "",
    };
    let udp = if packet.transport == Transport::Udp { " --proto udp" } else { "" };
    format!("{from}{udp} --to {}", packet.destination)
}

fn problems(
    packet: &Packet,
    (walk, reason): (&Walk<'_>, &Reason),
    live: &LiveState,
    pod: &Pod<'_>,
) -> Vec<Problem> {
    let has_ours = live.rules.get(&packet.family()).is_some_and(Rules::has_ours);
    if packet.is_of_passthrough() && !has_ours {
        // Without capture the proxy gets no connection to hand on.
        return Vec::new();
    }
    let behind = replies::problems(packet, walk, pod);
    let sentences: Vec<&str> = behind.iter().map(|problem| problem.sentence.as_str()).collect();
    let all = || if behind.is_empty() { reason.sentence.clone() } else { sentences.join("; ") };
    use finding::Problem as Kind;
    let routing = walk.policy_rule().filter(|cause| !fix::may_be_ours(cause, live));
    let is_routed = routing.is_some() && is_captured_by_ours(packet, live);
    let here = match walk.verdict {
        Verdict::Dropped => {
            let kind = if is_routed { Kind::PolicyRouting } else { Kind::TrafficLost };
            Some((kind, format!("is lost: {}", reason.sentence)))
        }
        Verdict::Misrouted => Some((Kind::PolicyRouting, format!("is lost: {}", all()))),
        Verdict::NotCaptured | Verdict::TakenByForeignRule if is_diverted(packet, walk, live, pod) => {
            Some((Kind::ForeignRule, format!("is not captured: {}", reason.sentence)))
        }
        Verdict::Captured(_)
        | Verdict::LikeItsConnection
        | Verdict::NoRoute
        | Verdict::NotCaptured
        | Verdict::TakenByForeignRule
        | Verdict::ToProxySocket => None,
    };
    let translating = || walk.steps.get(walk.translated_by.filter(|_| walk.because.is_some())?);
    let (mut about, is_of_owner) = causes(walk.decisive().or_else(translating), walk);
    let is_misrouted = walk.verdict == Verdict::Misrouted;
    let ends_by_foreign_rule = !about.is_empty();
    about.extend(routing);
    about.extend(walk.dropped_by.map(policy));
    about.extend(behind.iter().filter(|_| is_misrouted).map(condition));
    let unless = walk.uncertain.first().and_then(|at| walk.steps.get(*at)).map(Step::words);
    let unless = unless.map(|rule| format!("; unless a rule decides that cannot be evaluated: {rule}"));
    let unless = unless.unwrap_or_default();
    let problem = |(kind, sentence)| Problem {
        ends_by_foreign_rule,
        ends_by_policy: walk.dropped_by.is_some() && is_captured_by_ours(packet, live),
        is_certain: unless.is_empty(),
        is_of_egress: is_egress_filter(packet, walk, pod),
        fix: fix::of_walk(walk, pod),
        ..Problem::new(kind, format!("{sentence}{unless}"), (about.clone(), is_of_owner))
    };
    let mut found: Vec<Problem> = here.into_iter().map(problem).collect();
    if !is_misrouted {
        let is =
            if matches!(walk.verdict, Verdict::Captured(_)) { "captured, but" } else { "not captured, and" };
        found.extend(behind.iter().map(|problem| of_reply(problem, (is, &unless), live)));
    }
    if found.is_empty() {
        found.extend(may_go_elsewhere(walk).or_else(|| gets_none(packet, walk, live, pod)));
    }
    found
}

/// A foreign rule behind ours that forwards a port on which no process listens: the proxy has what it is for.
fn gets_none(packet: &Packet, taken: &Walk<'_>, live: &LiveState, pod: &Pod<'_>) -> Option<Problem> {
    let (Finding { problem, cause, .. }, walk) = forwarded_behind(packet, taken, live, pod)?;
    let rule = walk.decisive()?;
    let sentence = format!(
        "is captured, but {cause}; a foreign rule behind ours forwards the port and gets no captured connection: {}",
        rule.words()
    );
    let mut found = Problem::new(problem, sentence, causes(Some(rule), &walk));
    found.about.push(Subject::Condition(cause));
    Some(Problem { is_certain: true, ..found })
}

/// What a rule that cannot be evaluated may do.
fn may_go_elsewhere(walk: &Walk<'_>) -> Option<Problem> {
    let sentence = format!("may go elsewhere: {}", walk.unsure()?);
    let step = walk.uncertain.first().and_then(|at| walk.steps.get(*at));
    Some(Problem::new(finding::Problem::ForeignRule, sentence, causes(step, walk)))
}

/// What is wrong behind a verdict.
fn of_reply(problem: &ReplyProblem, (is, unless): (&str, &str), live: &LiveState) -> Problem {
    // What names the policy rule itself says why; of another one it is not known that it is foreign.
    let is_named =
        |cause: &&Subject| live.foreign().chain(&live.before).any(|finding| finding.about.contains(cause));
    let known_cause = problem.known_cause.as_ref().filter(is_named).cloned();
    let rule = problem.rule.clone().map(Subject::Rule);
    let is_of_others =
        |cause: &Subject| !matches!(cause, Subject::Condition(_)) && !fix::may_be_ours(cause, live);
    let about: Vec<Subject> = rule.into_iter().chain(known_cause).chain([condition(problem)]).collect();
    let sentence = format!("is {is} {}{unless}", problem.sentence);
    Problem {
        ends_by_foreign_rule: problem.is_certain && problem.rule.is_some(),
        ends_by_routing: problem.is_certain && problem.known_cause.as_ref().is_some_and(is_of_others),
        is_certain: problem.is_certain,
        ends_at_proxy: problem.ends_at_proxy,
        is_of_egress: problem.is_of_egress,
        fix: problem.fix.clone(),
        ..Problem::new(finding::Problem::TrafficLost, sentence, (about, false))
    }
}

/// Whether a foreign rule decides over what is captured without it, or over what the proxy sends.
fn is_diverted(packet: &Packet, walk: &Walk<'_>, live: &LiveState, pod: &Pod<'_>) -> bool {
    let proxy = &pod.config.traffic.proxy;
    let is_its = |process: Process| proxy.uids.contains(&process.uid) || process == pod.proxy();
    let is_of_proxy = packet.process.is_some_and(is_its);
    let is_taken = walk.verdict == Verdict::TakenByForeignRule && packet.transport == Transport::Tcp;
    walk.decisive().is_some_and(|step| step.rule.is_foreign())
        && ((is_taken && is_of_proxy) || is_captured_by_ours(packet, live))
}

/// Whether the packet is captured where foreign rules have no effect.
pub(super) fn is_captured_by_ours(packet: &Packet, live: &LiveState) -> bool {
    let (rules, routing) = (live.rules.get(&packet.family()), live.routing(packet.family()));
    rules.is_some_and(|rules| Sent::of(rules, packet, routing).is_captured_by_ours())
}

/// The policy of a chain.
fn policy((table, chain): (&str, &str)) -> Subject {
    Subject::Policy { table: table.to_owned(), chain: chain.to_owned() }
}

/// The problem by its sentence.
fn condition(problem: &ReplyProblem) -> Subject {
    Subject::Condition(problem.sentence.clone())
}

/// The rule that decides, then those that lead to it, and whether one of them is for an owner.
fn causes(decisive: Option<&Step<'_>>, walk: &Walk<'_>) -> (Vec<Subject>, bool) {
    let Some(decisive) = decisive.filter(|step| step.rule.is_foreign()) else { return (Vec::new(), false) };
    let leading: Vec<&Step<'_>> =
        walk.path_to(decisive).into_iter().filter(|step| step.rule.is_foreign()).collect();
    let is_of_owner = leading.iter().any(|step| step.rule.rule.tests_owner());
    (leading.into_iter().map(|step| Subject::Rule(step.id())).collect(), is_of_owner)
}
