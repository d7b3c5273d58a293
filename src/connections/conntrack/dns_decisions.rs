//! Compares the rules that a DNS query meets before and after a change.

use super::dns_flows::DnsFlows;
use crate::model::{Match, Owner, Statement, Target};

/// A rule of a path. The owners that it does not apply to are set apart: a longer list of them is no other
/// rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    rule: Option<Statement>,
    exceptions: Vec<Owner>,
    effect: Effect,
}

impl Decision {
    pub(super) fn of(rule: Option<&Statement>) -> Self {
        let (effect, mut rule) = (Effect::of(rule), rule.cloned());
        let owners = rule.as_mut().map(|rule| std::mem::take(&mut rule.matcher.owners)).unwrap_or_default();
        let (negated, plain) = owners.into_iter().partition(|owner| matches!(owner, Match::Not(_)));
        if let Some(rule) = &mut rule {
            rule.matcher.owners = plain;
        }
        let owner = |owner: Match<Owner>| match owner {
            Match::Is(owner) | Match::Not(owner) => owner,
        };
        let negated: Vec<Match<Owner>> = negated;
        Self { rule, exceptions: negated.into_iter().map(owner).collect(), effect }
    }

    /// The effect of each exception that the other version of this rule has not.
    fn exceptions_missing_in(&self, other: &Self) -> impl Iterator<Item = Effect> {
        let only_here = self.exceptions.iter().filter(|exception| !other.exceptions.contains(exception));
        only_here.map(|_| self.effect.of_an_exception())
    }

    /// Whether this rule captures every query that the other one captures.
    fn captures_all_of(&self, other: &Self) -> bool {
        let mut of_any_server = other.rule.clone();
        if let Some(rule) = &mut of_any_server {
            rule.matcher.destination = None;
        }
        self.effect == Effect::Captures
            && self.rule == of_any_server
            && self.exceptions.iter().all(|exception| other.exceptions.contains(exception))
    }
}

/// Compares two lists of rules: those that are in one of them only capture more queries or fewer, and so does
/// an exception that one of them only has.
pub(super) fn compare(before: &[Decision], after: &[Decision]) -> Option<DnsFlows> {
    if before == after {
        return None;
    }
    if before.is_empty() {
        return Some(DnsFlows::Direct);
    }
    if after.is_empty() {
        return Some(DnsFlows::Captured);
    }
    let (kept, removed) = split(before, after);
    let (known, added) = split(after, before);
    let (removed, added) = (not_captured_by(after, before, removed), not_captured_by(before, after, added));
    let same_order = in_the_same_order(&kept, &known);
    let mut removed: Vec<Effect> = removed.iter().map(|old| old.effect).collect();
    let mut added: Vec<Effect> = added.iter().map(|new| new.effect).collect();
    let versions = kept.iter().filter_map(|old| Some((old, known.iter().find(|new| new.rule == old.rule)?)));
    for (old, new) in versions {
        removed.extend(old.exceptions_missing_in(new));
        added.extend(new.exceptions_missing_in(old));
    }
    if same_order && removed.is_empty() && added.is_empty() {
        return None;
    }
    let all = |removes, adds| {
        removed.iter().all(|effect| *effect == removes) && added.iter().all(|effect| *effect == adds)
    };
    Some(if same_order && all(Effect::Excludes, Effect::Captures) {
        DnsFlows::Direct
    } else if same_order && all(Effect::Captures, Effect::Excludes) {
        DnsFlows::Captured
    } else {
        DnsFlows::All
    })
}

type Decisions<'a> = Vec<&'a Decision>;

/// The rules that are in the other list too, and those that are not.
fn split<'a>(rules: &'a [Decision], other: &[Decision]) -> (Decisions<'a>, Decisions<'a>) {
    rules.iter().partition(|rule| other.iter().any(|other| other.rule == rule.rule))
}

/// Whether the same rules are in an order with the same effect. That of the last ones does not matter if all
/// of them capture.
fn in_the_same_order(one: &[&Decision], other: &[&Decision]) -> bool {
    let captures = |rule: &&&Decision| rule.effect == Effect::Captures;
    let last = |rules: &[&Decision]| rules.iter().rev().take_while(captures).count();
    let until_last = one.len().saturating_sub(last(one));
    let rules = one.iter().zip(other).take(until_last);
    one.len() == other.len()
        && last(one) == last(other)
        && rules.into_iter().all(|(one, other)| one.rule == other.rule)
}

/// The rules of `missing`, from `here`, whose queries no rule for every server captures in `there`. Such a
/// rule must not come later than the missing one: a rule in both lists that only it is behind could decide
/// first.
fn not_captured_by<'a>(there: &[Decision], here: &[Decision], missing: Decisions<'a>) -> Decisions<'a> {
    let common_ahead = |rules: &[Decision], at: usize, other: &[Decision]| {
        split(rules.get(..at).unwrap_or_default(), other).0.len()
    };
    let is_captured = |rule: &&Decision| {
        let at = here.iter().position(|one| one.rule == rule.rule);
        let wider = there.iter().position(|one| one.captures_all_of(rule));
        at.zip(wider)
            .is_some_and(|(at, wider)| common_ahead(there, wider, here) <= common_ahead(here, at, there))
    };
    missing.into_iter().filter(|rule| !is_captured(rule)).collect()
}

/// The effect of a rule on the queries that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Captures,
    Excludes,
    Unknown,
}

impl Effect {
    const fn of_an_exception(self) -> Self {
        match self {
            Self::Captures => Self::Excludes,
            Self::Excludes => Self::Captures,
            Self::Unknown => Self::Unknown,
        }
    }

    fn of(rule: Option<&Statement>) -> Self {
        match rule.map(|rule| rule.target) {
            Some(Target::Redirect(_)) => Self::Captures,
            Some(Target::Return | Target::Accept) => Self::Excludes,
            Some(
                Target::ConntrackZone(_)
                | Target::Drop
                | Target::Jump(_)
                | Target::RestoreMark
                | Target::SaveMark
                | Target::SetMark(_)
                | Target::Tproxy { .. },
            )
            | None => Self::Unknown,
        }
    }
}
