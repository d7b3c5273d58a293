//! Follows classes of packets through the rules: [`crate::explain::walk`] for many packets at once.
//!
//! A rule splits a class into the packets that it matches and the rest. Classes with the same outcome are
//! joined again at the end of each chain.

use super::field::{
    FROM_OUTSIDE, Field, INSIDE, NEW, NO_SOCKET, TO_OUTSIDE, address_number, loopback_interface,
};
use super::program::{Action, Program, Rule};
use super::set::Set;
use super::walker::{MOST_CLASSES, RuleNumber, TooManyClasses, Value, Walker, changed, joined};
use crate::model::{Family, Hook};

/// Deepest jumps that are followed, as in [`crate::explain::walk`].
const DEEPEST: usize = 64;

/// What happens to the packets of a class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) mark: Value,
    pub(super) connmark: Value,
    /// The zone of connection tracking.
    pub(super) zone: u16,
    /// Whether connection tracking does not see it.
    pub(super) is_untracked: bool,
    /// A rule that may decide something else.
    pub(super) unsure: Option<RuleNumber>,
}

/// Where a packet goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// To a socket that its mark routes it to.
    ToProxySocket,
    Dropped,
    /// Where it was sent, or where its connection goes.
    Unchanged,
    /// A target takes it, with these words.
    TakenByForeignRule(String),
    /// To this port of the pod.
    ToPort(u16),
}

/// How packets leave a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Return,
    Accept,
    Drop,
    Take(String),
}

/// A rule that a packet met and that matched: the hook, whether its table is nat, and the rule.
pub(super) type Met = (Hook, bool, RuleNumber);

/// Classes of packets at the end of their way.
pub(super) type Ended = Vec<(Walker, Outcome)>;

/// Follows classes of packets through `program`.
pub(super) struct Run<'a> {
    family: Family,
    program: &'a Program,
    routed_marks: Set,
    ended: Ended,
    hook: (Hook, bool),
    /// The rules that matched, in order, if there is one packet only.
    met: Vec<Met>,
}

/// The classes into which the packets are split, each with its outcome.
pub(super) fn run(family: Family, program: &Program, start: Vec<Walker>) -> Result<Ended, TooManyClasses> {
    run_with_trace(family, program, start).map(|(ended, _)| ended)
}

/// The classes into which the packets are split, each with its outcome, and the rules that matched: of use
/// for a single packet.
pub(super) fn run_with_trace(
    family: Family,
    program: &Program,
    start: Vec<Walker>,
) -> Result<(Ended, Vec<Met>), TooManyClasses> {
    let (hook, ended, met) = ((Hook::Output, false), Vec::new(), Vec::new());
    let mut run = Run { family, program, routed_marks: program.routed(), ended, hook, met };
    run.all(start)?;
    Ok((run.ended, run.met))
}

impl Run<'_> {
    fn all(&mut self, start: Vec<Walker>) -> Result<(), TooManyClasses> {
        let (new, old) = (Set::one(NEW), Set::one(NEW).complement());
        let outbound = Set::range(INSIDE, TO_OUTSIDE);
        let (mut sent, mut arriving) = (Vec::new(), Vec::new());
        for walker in start {
            let [first, mut later] = walker.split(Field::State, &new, &old);
            if let Some(later) = &mut later {
                later.is_translated = true;
            }
            for walker in [first, later].into_iter().flatten() {
                let [outbound, inbound] = walker.split(Field::Path, &outbound, &outbound.complement());
                sent.extend(outbound);
                arriving.extend(inbound);
            }
        }
        for walker in self.hook(Hook::Output, sent)? {
            arriving.extend(self.looped(walker));
        }
        let arriving = joined(arriving)?;
        for walker in self.hook(Hook::Prerouting, arriving)? {
            self.arrived(walker);
        }
        Ok(())
    }

    /// What stays in the pod comes back over `lo`; the others end here.
    fn looped(&mut self, mut walker: Walker) -> Vec<Walker> {
        walker.tproxy = None;
        let mut staying = Vec::new();
        let mut rest = Some(walker);
        if let Some(walker) = rest.take_if(|walker| walker.redirect.is_some()) {
            staying.push(walker);
        }
        let inside = Set::one(INSIDE);
        for (field, values) in [(Field::Path, inside), (Field::Mark, self.routed_marks.clone())] {
            if let Some(walker) = rest.take() {
                let [stays, leaves] = walker.split(field, &values, &values.complement());
                staying.extend(stays);
                rest = leaves;
            }
        }
        if let Some(walker) = rest {
            self.end(walker, Verdict::Unchanged);
        }
        for walker in &mut staying {
            // The kernel removes the owner with the socket when the packet passes `lo`.
            walker.set(Field::Uid, Value::Constant(NO_SOCKET));
            walker.set(Field::Gid, Value::Constant(NO_SOCKET));
            walker.set(Field::OutInterface, Value::Constant(0));
            walker.set(Field::InInterface, Value::Constant(loopback_interface()));
        }
        staying
    }

    /// Behind the last rule of PREROUTING.
    fn arrived(&mut self, walker: Walker) {
        if let Some(port) = walker.tproxy.or(walker.redirect) {
            return self.end(walker, Verdict::ToPort(port));
        }
        let marks = self.routed_marks.clone();
        let [routed, others] = walker.split(Field::Mark, &marks, &marks.complement());
        let (mut on, mut by_mark): (Vec<_>, Vec<_>) = (others.into_iter().collect(), Vec::new());
        // The kernel finds the pod's own addresses first, whatever the mark.
        let (inside, from_outside, new) = (Set::one(INSIDE), Set::one(FROM_OUTSIDE), Set::one(NEW));
        let mut rest = routed;
        if let Some(walker) = rest.take() {
            let [own, others] = walker.split(Field::Path, &inside, &inside.complement());
            on.extend(own);
            rest = others;
        }
        if let Some(walker) = rest.take() {
            let [to_pod, others] = walker.split(Field::Path, &from_outside, &from_outside.complement());
            by_mark.extend(others);
            rest = to_pod;
        }
        if let Some(walker) = rest {
            let [first, later] = walker.split(Field::State, &new, &new.complement());
            on.extend(first);
            by_mark.extend(later);
        }
        on.into_iter().for_each(|walker| self.end(walker, Verdict::Unchanged));
        by_mark.into_iter().for_each(|walker| self.end(walker, Verdict::ToProxySocket));
    }

    fn end(&mut self, walker: Walker, verdict: Verdict) {
        let is_gone = matches!(verdict, Verdict::Dropped | Verdict::TakenByForeignRule(_));
        let [mark, connmark] = [Field::Mark, Field::Connmark]
            .map(|field| if is_gone { Value::Of(field) } else { walker.now(field) });
        let (zone, is_untracked) = if is_gone { (0, false) } else { (walker.zone, walker.is_untracked) };
        let outcome = Outcome { verdict, mark, connmark, zone, is_untracked, unsure: walker.unsure };
        self.ended.push((walker, outcome));
    }

    /// All base chains of one hook.
    fn hook(&mut self, hook: Hook, mut walkers: Vec<Walker>) -> Result<Vec<Walker>, TooManyClasses> {
        let program = self.program;
        for (_, base) in program.bases.iter().filter(|(at, _)| *at == hook) {
            self.hook = (hook, base.is_nat);
            let is_over =
                |walker: &Walker| base.is_nat && (walker.is_translated || walker.redirect.is_some());
            let (mut passed, entering): (Vec<_>, Vec<_>) = walkers.into_iter().partition(is_over);
            for (walker, flow) in self.chain(base.chain, entering, 0)? {
                match flow {
                    Flow::Drop => self.end(walker, Verdict::Dropped),
                    Flow::Take(words) => self.end(walker, Verdict::TakenByForeignRule(words)),
                    Flow::Next | Flow::Return if base.drops => self.end(walker, Verdict::Dropped),
                    Flow::Next | Flow::Return | Flow::Accept => passed.push(walker),
                }
            }
            walkers = joined(passed)?;
        }
        for walker in &mut walkers {
            walker.is_translated = true;
        }
        Ok(walkers)
    }

    fn chain(
        &mut self,
        number: usize,
        walkers: Vec<Walker>,
        depth: usize,
    ) -> Result<Vec<(Walker, Flow)>, TooManyClasses> {
        let program = self.program;
        let (mut here, mut left) = (walkers, Vec::new());
        let rules = program.chains.get(number).filter(|_| depth < DEEPEST);
        for (at, rule) in rules.into_iter().flat_map(|chain| &chain.rules).enumerate() {
            if here.is_empty() {
                break;
            }
            let (mut matching, mut rest) = (Vec::new(), Vec::new());
            for walker in here {
                matching.extend(of_rule(rule, (number, at), walker, &mut rest));
            }
            if !matching.is_empty() {
                self.met.push((self.hook.0, self.hook.1, (number, at)));
                if depth + 1 == DEEPEST && rule.actions.iter().any(leads_on) {
                    // What is behind it may do anything.
                    for walker in &mut matching {
                        walker.unsure = walker.unsure.or(Some((number, at)));
                    }
                    let taken = Flow::Take("chains nested too deep".to_owned());
                    left.extend(matching.iter().map(|walker| (walker.clone(), taken.clone())));
                }
                for (walker, flow) in self.actions(&rule.actions, matching, depth)? {
                    if flow == Flow::Next { rest.push(walker) } else { left.push((walker, flow)) }
                }
            }
            if rest.len() + left.len() > MOST_CLASSES {
                return Err(TooManyClasses);
            }
            here = rest;
        }
        left.extend(joined(here)?.into_iter().map(|walker| (walker, Flow::Next)));
        Ok(left)
    }

    fn actions(
        &mut self,
        actions: &[Action],
        mut walkers: Vec<Walker>,
        depth: usize,
    ) -> Result<Vec<(Walker, Flow)>, TooManyClasses> {
        let mut left = Vec::new();
        for action in actions {
            let flow = match action {
                Action::Accept => Flow::Accept,
                Action::Drop => Flow::Drop,
                Action::Return => Flow::Return,
                Action::Take(words) => Flow::Take(words.clone()),
                Action::Jump(chain) | Action::Goto(chain) => {
                    let goes = matches!(action, Action::Goto(_));
                    let mut back = Vec::new();
                    for (walker, flow) in self.chain(*chain, std::mem::take(&mut walkers), depth + 1)? {
                        match flow {
                            Flow::Next | Flow::Return if goes => left.push((walker, Flow::Return)),
                            Flow::Next | Flow::Return => back.push(walker),
                            Flow::Accept | Flow::Drop | Flow::Take(_) => left.push((walker, flow)),
                        }
                    }
                    walkers = joined(back)?;
                    continue;
                }
                Action::Redirect(port) => {
                    let loopback = match self.family {
                        Family::V4 => std::net::Ipv4Addr::LOCALHOST.into(),
                        Family::V6 => std::net::Ipv6Addr::LOCALHOST.into(),
                    };
                    // What has its socket by TPROXY stays there, whatever nat does.
                    for walker in walkers.iter_mut().filter(|walker| walker.tproxy.is_none()) {
                        walker.redirect = Some(*port);
                        walker.set(Field::Destination, Value::Constant(address_number(loopback)));
                        walker.set(Field::DestinationPort, Value::Constant((*port).into()));
                        walker.set(Field::Path, Value::Constant(INSIDE));
                    }
                    Flow::Accept
                }
                change @ (Action::Copy(..)
                | Action::Obscure(_)
                | Action::Set(..)
                | Action::Tproxy(_)
                | Action::Untrack
                | Action::Zone(_)) => {
                    walkers.iter_mut().for_each(|walker| changed(walker, change));
                    continue;
                }
            };
            left.extend(walkers.into_iter().map(|walker| (walker, flow.clone())));
            return Ok(left);
        }
        left.extend(walkers.into_iter().map(|walker| (walker, Flow::Next)));
        Ok(left)
    }
}

/// Whether an action leads to another chain.
const fn leads_on(action: &Action) -> bool {
    matches!(action, Action::Jump(_) | Action::Goto(_))
}

/// The packets that a rule matches; the others go to `rest`, and so do those of which that is not known.
fn of_rule(rule: &Rule, number: RuleNumber, walker: Walker, rest: &mut Vec<Walker>) -> Option<Walker> {
    if rule.tests.iter().any(|test| walker.misses(test.field, &test.values)) {
        rest.push(walker);
        return None;
    }
    let mut matching = walker;
    let mut is_unsure = rule.is_unknown;
    for test in &rule.tests {
        if matching.now(test.field) == Value::Unknown {
            is_unsure = true;
            continue;
        }
        let [inside, outside] = matching.split(test.field, &test.values, &test.others);
        rest.extend(outside);
        matching = inside?;
    }
    // The new mark is unknown, so what depends on it is, too.
    if rule.actions.iter().any(|action| matches!(action, Action::Obscure(_))) {
        matching.unsure = matching.unsure.or(Some(number));
    }
    if is_unsure {
        matching.unsure = matching.unsure.or(Some(number));
        rest.push(matching.clone());
    }
    Some(matching)
}
