//! Rules of which it is not known whether they match, or what they do: with which of them the verdict would be another.

use super::super::foreign_rule::Effect;
use super::{Match, Sent, Step, Verdict, Walk};

/// Most walks for one packet. What is not tried may make a difference.
const MOST: usize = 32;

impl<'a> Sent<'a, '_> {
    /// Leaves those of the uncertain steps with which the packet goes another way, or is tracked otherwise.
    pub(super) fn settle(self, first: &mut Walk<'a>) {
        let mut left = MOST;
        let uncertain = std::mem::take(&mut first.uncertain);
        let makes_difference =
            |at: &usize| !can_be_chosen(first.steps.get(*at)) || self.differs(first, &[*at], &mut left);
        first.uncertain = uncertain.into_iter().filter(makes_difference).collect();
    }

    /// Whether a walk with these choices, or with others behind them, ends otherwise.
    fn differs(self, first: &Walk<'_>, chosen: &[usize], left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else { return true };
        *left = rest;
        let walk = self.walk_with(chosen);
        if outcome(&walk) != outcome(first) {
            return true;
        }
        let last = chosen.last().copied().unwrap_or_default();
        walk.uncertain.iter().any(|at| match can_be_chosen(walk.steps.get(*at)) {
            true if *at > last => self.differs(first, &[chosen, &[*at]].concat(), left),
            // A choice without this one is tried on its own.
            true => false,
            false => *at >= last,
        })
    }
}

/// Whether the rule of a step may match: if it is certain to, what it does is not known.
fn can_be_chosen(step: Option<&Step<'_>>) -> bool {
    step.is_some_and(|step| matches!(step.matches, Match::Maybe(_)) || step.effect == Some(Effect::MayTake))
}

/// What matters of a walk for the packet and for those that follow it.
fn outcome(walk: &Walk<'_>) -> (Verdict, impl PartialEq) {
    let end = &walk.end;
    (
        walk.verdict,
        (end.is_tracked, end.zone, end.connmark, end.has_known_marks, walk.translated_by.is_some()),
    )
}
