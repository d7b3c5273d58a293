//! Which of the rules that were tried is the reason for the verdict.

use super::foreign_rule::Effect;
use super::packet::Packet;
use super::walk::{Match, Step, Verdict};
use crate::model::{Chain, Hook, Mark, Table, Target};

/// The step that is the reason for the verdict; `mark` is that of TPROXY.
pub(super) fn decisive(
    steps: &[Step<'_>],
    packet: &Packet,
    verdict: Verdict,
    mark: Option<Mark>,
) -> Option<usize> {
    let target =
        |step: &Step<'_>| if let Some(Effect::Known(target)) = step.effect { Some(target) } else { None };
    let last = |wanted: &dyn Fn(&Step<'_>) -> bool| {
        steps.iter().rposition(|step| step.matches == Match::Matches && wanted(step))
    };
    match verdict {
        Verdict::LikeItsConnection | Verdict::NoRoute => None,
        Verdict::Misrouted => {
            last(&|step| step.rule.is_foreign() && matches!(target(step), Some(Target::SetMark(_))))
        }
        Verdict::TakenByForeignRule => last(&|step| step.rule.is_foreign()),
        Verdict::Dropped => last(&|step| target(step) == Some(Target::Drop)),
        Verdict::ToProxySocket => {
            last(&|step| matches!(target(step), Some(Target::SetMark(_) | Target::RestoreMark)))
        }
        Verdict::Captured(_) => {
            // What TPROXY has taken, nat does not redirect.
            let by_tproxy = last(&|step| matches!(target(step), Some(Target::Tproxy { .. })));
            let taken =
                by_tproxy.or_else(|| last(&|step| matches!(target(step), Some(Target::Redirect(_)))))?;
            // A chain that only redirects: the reason is what jumped to it.
            let chain = Chain::from_name(steps.get(taken)?.chain)
                .filter(|chain| [Chain::Redirect, Chain::InRedirect, Chain::Tproxy].contains(chain));
            let jumped = chain.and_then(|chain| last(&|step| target(step) == Some(Target::Jump(chain))));
            Some(jumped.unwrap_or(taken))
        }
        Verdict::NotCaptured => {
            let untracked = last(&|step| step.effect == Some(Effect::Untracks));
            if untracked.is_some() {
                return untracked;
            }
            // Where new connections are captured: by REDIRECT in the nat table, those from outside by TPROXY in mangle.
            let is_by_tproxy = packet.is_inbound && mark.is_some();
            let hook = if packet.is_inbound { Hook::Prerouting } else { Hook::Output };
            last(&|step| {
                step.hook == hook.name()
                    && (step.table == Table::Nat.name() || is_by_tproxy && step.table == Table::Mangle.name())
                    && matches!(target(step), Some(Target::Return | Target::Accept))
            })
        }
    }
}
