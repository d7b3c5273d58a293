//! Whether a foreign rule that decides is the cause.

use super::decisive::is_foreign_goto;
use super::order::Order;
use super::{Match, Sent, Step, Verdict, Walk};
use crate::live_rules::Effect;
use crate::model::Target;

impl<'a> Sent<'a, '_> {
    /// A foreign rule is not the cause if the packet is not captured without foreign rules either: for want
    /// of a rule of ours, or, where the foreign one ends connection tracking, by one.
    pub(super) fn find_cause(self, walk: &mut Walk<'a>) {
        let decisive = walk.decisive().filter(|step| step.rule.is_foreign());
        let effect = decisive.and_then(|step| step.effect.clone());
        let untracks = effect == Some(Effect::Untracks);
        let accepts = matches!(effect, Some(Effect::Known(Target::Accept | Target::Return)))
            || decisive.is_some_and(is_foreign_goto);
        if walk.verdict != Verdict::NotCaptured || !(untracks || accepts) {
            return;
        }
        let ours = self.walk_by(&[], Order::OnlyOurs);
        match ours.decisive() {
            _ if ours.verdict != Verdict::NotCaptured || ours.because.is_some() => {}
            None => walk.decided_by = None,
            Some(step) if untracks => (walk.decided_by, walk.cause) = (None, Some(step.clone())),
            Some(_) => {}
        }
    }

    /// The way of the packet where rules of ours have no effect.
    pub(in super::super) fn without_ours(self) -> Walk<'a> {
        self.walk_by(&[], Order::OnlyForeign)
    }

    /// Whether it is captured where foreign rules, and policy rules and routes that reject packets, have no
    /// effect: whether policy routing then brings it to the proxy or not.
    pub(in super::super) fn is_captured_by_ours(self) -> bool {
        let walk = self.walk_by(&[], Order::OnlyOurs);
        let captures = |step: &Step<'_>| {
            let is_capture = |effect: &Effect| {
                matches!(effect, Effect::Known(Target::Redirect(_) | Target::Tproxy { .. }))
            };
            step.matches == Match::Matches && step.effect.as_ref().is_some_and(is_capture)
        };
        match walk.verdict {
            Verdict::Captured(_) => true,
            Verdict::Misrouted => walk.steps.iter().any(captures),
            Verdict::Dropped
            | Verdict::LikeItsConnection
            | Verdict::NoRoute
            | Verdict::NotCaptured
            | Verdict::TakenByForeignRule
            | Verdict::ToProxySocket => false,
        }
    }
}
