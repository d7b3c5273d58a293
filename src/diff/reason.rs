//! The reason for the verdict of a rule set, in words.

use super::Side;
use super::difference::Difference;
use super::field::{ESTABLISHED, Field, NEW};
use super::program::{Action, Part, Program, Rule};
use super::run::{Met, Outcome, Verdict, run_with_trace};
use super::walker::{RuleNumber, Value, Walker};
use super::witness::Witness;
use crate::model::Hook;
use crate::text::one_line;

/// What one rule set does with a packet.
#[derive(Clone, Debug)]
pub(super) struct Reason {
    /// As `explain --output json` names it.
    pub(super) verdict: &'static str,
    pub(super) port: Option<u16>,
    /// The verdict in words, with what else happens to the packet.
    pub(super) words: String,
    pub(super) because: String,
    /// Table, chain and words of the rule that decides.
    pub(super) rule: Option<String>,
    /// The command that shows it.
    pub(super) explain: Option<String>,
}

/// What both rule sets do with the packet of a difference.
pub(super) fn reasons(difference: &Difference, sides: &[Side; 2]) -> [Reason; 2] {
    let [first, second] = &difference.outcomes;
    let [a, b] = sides;
    [reason(difference, a, first, second), reason(difference, b, second, first)]
}

fn reason(difference: &Difference, side: &Side, outcome: &Outcome, other: &Outcome) -> Reason {
    let witness = &difference.witness;
    let (verdict, port, mut words) = verdict(&outcome.verdict, witness);
    for effect in effects(outcome, other) {
        words.push_str(", ");
        words.push_str(&effect);
    }
    let decisive = side.programs.get(&difference.family).and_then(|program| {
        let start = vec![Walker::new(witness.class(), 0)];
        let (_, met) = run_with_trace(difference.family, program, start).ok()?;
        let rule = decisive(program, &met, outcome, other, witness)?;
        let chain = program.chains.get(rule.0)?;
        let part = chain.rules.get(rule.1)?.part(|field| witness.get(field))?;
        Some((chain.name.clone(), part.clone()))
    });
    let because = match &decisive {
        Some((_, Part { why: Some(why), .. })) => why.sentence().to_owned(),
        Some((chain, _)) => format!("a rule without a known reason in {chain}"),
        None => no_rule(outcome, witness).to_owned(),
    };
    let rule = decisive.map(|(chain, part)| one_line(&format!("{chain} {}", part.text)).into_owned());
    let explain = side.explain.iter().zip(&witness.question);
    let explain = explain.map(|(side, question)| command(side, question)).next();
    Reason { verdict, port, words, because, rule, explain }
}

/// A command line, quoted where a shell needs it.
fn command(words: &[String], more: &[String]) -> String {
    let quoted = |word: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().chain(more).map(quoted).collect::<Vec<_>>().join(" ")
}

fn verdict(verdict: &Verdict, witness: &Witness) -> (&'static str, Option<u16>, String) {
    let state = witness.get(Field::State);
    match verdict {
        Verdict::ToPort(port) => ("captured", Some(*port), format!("captured: goes to port {port}")),
        Verdict::Dropped => ("dropped", None, "dropped".to_owned()),
        Verdict::TakenByForeignRule(words) => (
            "taken-by-foreign-rule",
            None,
            format!("not captured: a foreign rule takes it ({})", one_line(words)),
        ),
        Verdict::ToProxySocket if state == NEW => {
            ("misrouted", None, "lost: its mark routes it to the pod itself".to_owned())
        }
        Verdict::ToProxySocket => {
            ("captured-by-mark", None, "captured: its mark routes it to the proxy's socket".to_owned())
        }
        Verdict::Unchanged if state == ESTABLISHED => {
            ("like-its-connection", None, "as its connection".to_owned())
        }
        Verdict::Unchanged => ("not-captured", None, "not captured: goes where it was sent".to_owned()),
    }
}

/// What differs although the verdict is the same.
fn effects(outcome: &Outcome, other: &Outcome) -> Vec<String> {
    let mut effects = Vec::new();
    let mark = |what: &str, value: Value| match value {
        Value::Of(field) if (field == Field::Connmark) == (what == "connection mark") => {
            format!("its {what} unchanged")
        }
        Value::Of(Field::Connmark) => format!("its {what} set to the connection mark"),
        Value::Of(_) => format!("its {what} set to the mark"),
        Value::Constant(mark) => format!("its {what} set to {mark:#x}"),
        Value::Unknown => format!("its {what} not known"),
    };
    if outcome.is_untracked != other.is_untracked {
        let tracked = if outcome.is_untracked { "not tracked" } else { "tracked" };
        effects.push(format!("{tracked} by connection tracking"));
    } else if outcome.zone != other.zone {
        effects.push(format!("tracked in zone {}", outcome.zone));
    }
    if outcome.verdict == other.verdict {
        effects.extend((outcome.mark != other.mark).then(|| mark("mark", outcome.mark)));
        effects
            .extend((outcome.connmark != other.connmark).then(|| mark("connection mark", outcome.connmark)));
    }
    effects
}

const fn no_rule(outcome: &Outcome, witness: &Witness) -> &'static str {
    match outcome.verdict {
        Verdict::Unchanged if witness.get(Field::State) == ESTABLISHED => {
            "nat rules see the first packet of a connection only; what they decided holds for the others"
        }
        Verdict::Dropped => "the policy of a chain is DROP",
        Verdict::Unchanged | Verdict::ToProxySocket | Verdict::TakenByForeignRule(_) | Verdict::ToPort(_) => {
            "no rule captures it"
        }
    }
}

/// The rule that is the reason for an outcome, or for the difference from the other one.
fn decisive(
    program: &Program,
    met: &[Met],
    outcome: &Outcome,
    other: &Outcome,
    witness: &Witness,
) -> Option<RuleNumber> {
    let of = |(_, _, number): &Met| program.chains.get(number.0)?.rules.get(number.1);
    let last = |wanted: &dyn Fn(&Rule) -> bool| met.iter().rev().find(|met| of(met).is_some_and(wanted));
    let has = |wanted: fn(&Action) -> bool| last(&move |rule: &Rule| rule.actions.iter().any(wanted));
    let marks = |action: &Action| matches!(action, Action::Set(..) | Action::Copy(..) | Action::Obscure(_));
    let found = if outcome.verdict == other.verdict {
        // The verdict is the same: another effect is the difference.
        if outcome.is_untracked {
            has(|action| *action == Action::Untrack)
        } else if outcome.zone != other.zone {
            met.iter().find(|met| {
                of(met)
                    .is_some_and(|rule| rule.actions.iter().any(|action| matches!(action, Action::Zone(_))))
            })
        } else if (outcome.mark, outcome.connmark) == (Value::Of(Field::Mark), Value::Of(Field::Connmark)) {
            None
        } else {
            last(&|rule| rule.actions.iter().any(marks))
        }
    } else {
        match &outcome.verdict {
            Verdict::Dropped => has(|action| *action == Action::Drop),
            Verdict::TakenByForeignRule(_) => has(|action| matches!(action, Action::Take(_))),
            Verdict::ToProxySocket => last(&|rule| rule.actions.iter().any(marks)),
            Verdict::ToPort(_) => {
                let by_tproxy = has(|action| matches!(action, Action::Tproxy(_)));
                let taken = by_tproxy.or_else(|| has(|action| matches!(action, Action::Redirect(_))))?;
                // A chain that only redirects: the reason is what jumped to it.
                let chain = taken.2.0;
                let redirects = |rule: &Rule| {
                    rule.actions.iter().any(|action| {
                        matches!(action, Action::Redirect(_) | Action::Tproxy(_) | Action::Drop)
                    })
                };
                let only = program.chains.get(chain).is_some_and(|chain| chain.rules.iter().all(redirects));
                let jump = last(&|rule| rule.actions.contains(&Action::Jump(chain)));
                jump.filter(|_| only).or(Some(taken))
            }
            Verdict::Unchanged => return not_captured(program, met, outcome, witness),
        }
    };
    found.map(|met| met.2)
}

/// The rule for which a packet is not captured: where new connections are, of a sender in the pod in the nat
/// table.
fn not_captured(program: &Program, met: &[Met], outcome: &Outcome, witness: &Witness) -> Option<RuleNumber> {
    let is_inbound = witness.class().get(Field::Path).contains(super::field::FROM_OUTSIDE)
        || witness.get(Field::Path) == super::field::FORWARDED;
    let hook = if is_inbound { Hook::Prerouting } else { Hook::Output };
    let found = met.iter().rev().find(|(at, is_nat, number)| {
        let rule = program.chains.get(number.0).and_then(|chain| chain.rules.get(number.1));
        let ends = |action: &Action| match action {
            Action::Untrack => outcome.is_untracked,
            Action::Return | Action::Accept => *at == hook && (is_inbound || *is_nat),
            Action::Copy(..)
            | Action::Drop
            | Action::Goto(_)
            | Action::Jump(_)
            | Action::Obscure(_)
            | Action::Redirect(_)
            | Action::Set(..)
            | Action::Take(_)
            | Action::Tproxy(_)
            | Action::Zone(_) => false,
        };
        rule.is_some_and(|rule| rule.actions.iter().any(ends))
    });
    found.map(|met| met.2)
}
