//! The base chains of other programs before and behind our rules.

use super::super::beside::{CONNTRACK_PRIORITY, NAT_PRIORITY};
use super::super::rules::BaseChain;
use super::hook::Kind;
use super::{Flow, Place, Verdict, Walker, dropped_by_policy};
use crate::model::Hook;

impl Walker<'_, '_> {
    /// The chains of a hook behind ours; `None` if none of them decides.
    pub(super) fn later(&mut self, hook: &'static str) -> Option<Verdict> {
        let rules = self.rules;
        for base in rules.later.iter().filter(|base| base.hook == hook) {
            let place =
                Place { hook, table: &base.table, chains: &base.chains, chain: &base.chain, depth: 0 };
            let flow = self.routed_after(place, Kind::of(base), |walker| walker.rules(place, &base.rules));
            let last = self.steps.len().checked_sub(1);
            match flow {
                Flow::NoRoute => return Some(self.unroutable()),
                Flow::Drop => self.later = last.filter(|_| self.because.is_none()),
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

    /// The base chains of other programs' tables with a priority in a range, and those of nat with the table of nat; `None` if none of
    /// them decides.
    pub(super) fn before(&mut self, hook: Hook, (last, next): (i32, i32), outcome: Flow) -> Option<Flow> {
        let rules = self.rules;
        // All of nat have one place, and their order there.
        let has_place = |base: &BaseChain| match next {
            NAT_PRIORITY if base.is_nat => base.priority <= NAT_PRIORITY,
            _ if base.is_nat => last == NAT_PRIORITY && base.priority > NAT_PRIORITY,
            _ => (last..next).contains(&base.priority.saturating_sub(1)) && last < NAT_PRIORITY,
        };
        let is_met = |base: &&BaseChain| base.hook == hook.name() && has_place(base);
        for base in rules.before.iter().filter(is_met) {
            if base.is_nat && self.is_past_nat() {
                continue;
            }
            if base.priority >= CONNTRACK_PRIORITY {
                self.at.is_seen = true;
            }
            let place = Place {
                hook: base.hook,
                table: &base.table,
                chains: &base.chains,
                chain: &base.chain,
                depth: 0,
            };
            let before = (self.at.clone(), self.to, self.routed.len());
            let flow = self.routed_after(place, Kind::of(base), |walker| walker.rules(place, &base.rules));
            let last = self.steps.len().checked_sub(1);
            let rejects =
                || last.and_then(|last| self.steps.get(last)).is_some_and(|step| step.rule.rejects());
            match flow {
                Flow::Drop | Flow::Taken | Flow::Redirect(_) if Self::is_beside_ours(base) => {
                    self.uncertain.extend(last);
                    (self.at, self.to) = (before.0, before.1);
                    self.routed.truncate(before.2);
                }
                Flow::Taken | Flow::Redirect(_) if base.is_nat && matches!(outcome, Flow::Tproxy(_)) => {
                    (self.translated_by, self.is_translated) = (last, true);
                }
                Flow::Taken if !rejects() => return Some(Flow::Taken),
                Flow::Redirect(_) => {
                    self.is_translated = true;
                    return Some(flow);
                }
                Flow::NoRoute => return Some(flow),
                Flow::Drop | Flow::Taken => {
                    self.later = last.filter(|_| self.because.is_none());
                    return Some(Flow::Drop);
                }
                Flow::Continue | Flow::Return if base.drops => {
                    self.because = Some(dropped_by_policy(&base.table, &base.chain));
                    return Some(Flow::Drop);
                }
                Flow::Continue | Flow::Return | Flow::Accept | Flow::Tproxy(_) => {}
            }
        }
        None
    }
}
