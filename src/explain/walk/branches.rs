//! Rules that cannot be evaluated: which of them would change the verdict if they matched.

use std::cmp::Reverse;

use super::{Match, Sent, Step, Verdict, Walk};
use crate::live_rules::Effect;

/// The limit of walks for one packet. A rule that is not tried counts as one that may change the verdict.
const MOST: usize = 32;

impl<'a> Sent<'a, '_> {
    /// Keeps the uncertain steps that change the verdict, or how the connection is tracked. Those with rules
    /// for few packets besides this one come first: what tests its port is more likely to be meant for it
    /// than what tests nothing that is known.
    pub(super) fn settle(self, first: &mut Walk<'a>) {
        let mut left = MOST;
        let uncertain = std::mem::take(&mut first.uncertain);
        let makes_difference =
            |at: &usize| !can_be_chosen(first.steps.get(*at)) || self.differs(first, &[*at], &mut left);
        first.uncertain = uncertain.into_iter().filter(makes_difference).collect();
        let known_tests = |at: &usize| first.steps.get(*at).map(|step| step.rule.rule.tests().len());
        first.uncertain.sort_by_cached_key(|at| Reverse(known_tests(at)));
    }

    /// Whether a walk in which these steps match, alone or with later ones, has another outcome.
    fn differs(self, first: &Walk<'_>, chosen: &[usize], left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else { return true };
        *left = rest;
        let walk = self.walk_with(chosen);
        // Of a packet that stands for many only the verdict counts.
        let reads_connmark = self.open.is_empty() && self.rules.reads_connmark();
        if outcome(&walk, reads_connmark) != outcome(first, reads_connmark) {
            return true;
        }
        let last = chosen.last().copied().unwrap_or_default();
        walk.uncertain.iter().any(|at| match can_be_chosen(walk.steps.get(*at)) {
            true if *at > last => self.differs(first, &[chosen, &[*at]].concat(), left),
            // Earlier steps are tried in a walk of their own. What matches by now may still come behind a
            // chain of ours.
            true => chosen.contains(at),
            false => *at >= last,
        })
    }
}

/// Whether a walk can assume that the rule matches. If it certainly matches, its effect is unknown instead.
fn can_be_chosen(step: Option<&Step<'_>>) -> bool {
    let may_take = |step: &Step<'_>| {
        matches!(
            step.effect,
            Some(Effect::Queues { bypass: true } | Effect::RewritesEnds | Effect::ToSocket { .. })
        )
    };
    step.is_some_and(|step| matches!(step.matches, Match::Maybe(_)) || may_take(step))
}

/// The outcome of a walk for the packet and later ones of its connection, whose mark counts where a rule
/// reads it.
pub(super) fn outcome(walk: &Walk<'_>, reads_connmark: bool) -> (Verdict, impl PartialEq) {
    let end = &walk.end;
    let marks = reads_connmark.then_some((end.connmark, end.has_known_marks));
    (walk.verdict, (end.is_tracked, end.zone, marks, walk.translated_by.is_some()))
}
