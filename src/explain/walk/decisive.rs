//! Which of the rules that were tried is the reason for the verdict.

use super::super::packet::Packet;
use super::super::rules::{INPUT, POSTROUTING};
use super::{Match, Step, Verdict};
use crate::live_rules::Effect;
use crate::model::{Chain, Hook, Mark, Table, Target, Why};

/// The step that is the reason for the verdict; `mark` is that of TPROXY.
pub(super) fn decisive(
    steps: &[Step<'_>],
    packet: &Packet,
    verdict: Verdict,
    mark: Option<Mark>,
) -> Option<usize> {
    let translates = |step: &Step<'_>| {
        ![INPUT, POSTROUTING].contains(&step.hook) && step.effect.as_ref().is_some_and(Effect::translates)
    };
    let target =
        |step: &Step<'_>| if let Some(Effect::Known(target)) = step.effect { Some(target) } else { None };
    let last = |wanted: &dyn Fn(&Step<'_>) -> bool| {
        steps.iter().rposition(|step| step.matches == Match::Matches && wanted(step))
    };
    match verdict {
        Verdict::LikeItsConnection | Verdict::NoRoute => None,
        Verdict::Misrouted => last(&|step| step.rule.is_foreign() && changes_mark(step)),
        Verdict::TakenByForeignRule => last(&|step| step.rule.is_foreign()),
        Verdict::Dropped => last(&|step| target(step) == Some(Target::Drop)),
        Verdict::ToProxySocket => {
            last(&|step| matches!(target(step), Some(Target::SetMark(_) | Target::RestoreMark)))
        }
        Verdict::Captured(_) => {
            // What TPROXY has taken, nat does not redirect.
            let by_tproxy = last(&|step| {
                matches!(step.effect, Some(Effect::Known(Target::Tproxy { .. }) | Effect::GivesSocket(..)))
            });
            let redirects =
                |step: &Step<'_>| matches!(target(step), Some(Target::Redirect(_))) || translates(step);
            let taken = by_tproxy.or_else(|| last(&redirects))?;
            // A chain that only redirects: the reason is what jumped to it.
            let chain = Chain::from_name(steps.get(taken)?.chain)
                .filter(|chain| [Chain::Redirect, Chain::InRedirect, Chain::Tproxy].contains(chain));
            let jumped = chain.and_then(|chain| last(&|step| target(step) == Some(Target::Jump(chain))));
            Some(jumped.unwrap_or(taken))
        }
        Verdict::NotCaptured => {
            // Where new connections are captured: by REDIRECT in the nat table, those from outside by TPROXY
            // in mangle.
            let is_by_tproxy = packet.is_inbound && mark.is_some();
            let untracks =
                |step: &Step<'_>| step.matches == Match::Matches && step.effect == Some(Effect::Untracks);
            let untracked = steps.iter().position(untracks);
            if untracked.is_some() && !is_by_tproxy {
                return untracked;
            }
            let hook = if packet.is_inbound { Hook::Prerouting } else { Hook::Output };
            let decided = last(&|step| {
                step.hook == hook.name()
                    && (step.table == Table::Nat.name() || is_by_tproxy && step.table == Table::Mangle.name())
                    && (matches!(target(step), Some(Target::Return | Target::Accept))
                        || is_foreign_goto(step))
            })?;
            // Our rule for packets of the proxy's own connection: another program has given this one their
            // mark.
            let is_for_marked = steps.get(decided)?.rule.why == Some(Why::AlreadyMarked);
            let marked = last(&|step| step.rule.is_foreign() && changes_mark(step));
            Some(marked.filter(|_| is_for_marked).unwrap_or(decided))
        }
    }
}

/// Whether the packet does not come back to the chain of a foreign rule.
pub(super) const fn is_foreign_goto(step: &Step<'_>) -> bool {
    step.rule.is_foreign() && matches!(step.effect, Some(Effect::Chain { is_goto: true, .. }))
}

const fn changes_mark(step: &Step<'_>) -> bool {
    matches!(step.effect, Some(Effect::Known(Target::SetMark(_)) | Effect::ChangesMark(_)))
}
