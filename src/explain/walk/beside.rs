//! The base chains of other programs before and behind our rules.

use super::super::beside::{CONNTRACK_PRIORITY, NAT_PRIORITY};
use super::{Flow, Place, Verdict, Walker, dropped_by_policy};
use crate::model::Hook;

impl Walker<'_, '_> {
    /// The chains of a hook behind ours; `None` if none of them decides.
    pub(super) fn later(&mut self, hook: &'static str) -> Option<Verdict> {
        let rules = self.rules;
        for base in rules.later.iter().filter(|base| base.hook == hook) {
            let place =
                Place { hook, table: &base.table, chains: &base.chains, chain: &base.chain, depth: 0 };
            let flow = self.rules(place, &base.rules);
            let last = self.steps.len().checked_sub(1);
            match flow {
                Flow::Drop => self.later = last,
                Flow::Taken => {
                    self.later = last;
                    let step = last.and_then(|last| self.steps.get(last))?;
                    if !step.rule.rejects() {
                        return Some(Verdict::TakenByForeignRule);
                    }
                }
                Flow::Continue | Flow::Return if base.drops => {
                    self.because = Some(dropped_by_policy(&base.table, &base.chain));
                }
                Flow::Continue | Flow::Return | Flow::Accept | Flow::Redirect(_) | Flow::Tproxy(_) => {
                    continue;
                }
            }
            return Some(Verdict::Dropped);
        }
        None
    }

    /// The base chains of other programs' tables before ours; `None` if none of them decides. Marks that they set are not
    /// followed.
    pub(super) fn before(&mut self, hook: Hook) -> Option<Flow> {
        let rules = self.rules;
        for base in rules.before.iter().filter(|base| base.hook == hook.name()) {
            if base.is_nat && self.is_translated {
                continue;
            }
            let (is_translated, is_tracked) = (self.is_translated, self.at.is_tracked);
            self.is_early = base.priority < CONNTRACK_PRIORITY && !self.is_seen;
            let place = Place {
                hook: base.hook,
                table: &base.table,
                chains: &base.chains,
                chain: &base.chain,
                depth: 0,
            };
            let flow = self.rules(place, &base.rules);
            // What is tracked already is not untracked.
            if base.priority >= CONNTRACK_PRIORITY {
                (self.is_translated, self.at.is_tracked) = (is_translated, is_tracked);
            }
            let last = self.steps.len().checked_sub(1);
            let rejects =
                || last.and_then(|last| self.steps.get(last)).is_some_and(|step| step.rule.rejects());
            match flow {
                // Of two chains with one priority the kernel takes the one first that was made last.
                Flow::Drop | Flow::Taken if base.is_nat && base.priority == NAT_PRIORITY => {
                    self.uncertain.extend(last);
                }
                Flow::Taken if !rejects() => return Some(Flow::Taken),
                Flow::Drop | Flow::Taken => {
                    self.later = last;
                    return Some(Flow::Drop);
                }
                Flow::Continue | Flow::Return if base.drops => {
                    self.because = Some(dropped_by_policy(&base.table, &base.chain));
                    return Some(Flow::Drop);
                }
                Flow::Continue | Flow::Return | Flow::Accept | Flow::Redirect(_) | Flow::Tproxy(_) => {}
            }
        }
        None
    }
}
