//! The base chains of other programs before and after our rules.

use super::super::matching::PacketState;
use super::super::routing::{Looked, Routed};
use super::super::rules::{BaseChain, SOURCE_NAT_PRIORITY};
use super::super::stage::Stage;
use super::hook::Kind;
use super::{ChainPosition, Flow, Socket, Verdict, Walker};
use crate::config::ConnectionState;
use crate::live_rules::Effect;
use crate::model::{CONNTRACK_PRIORITY, Hook, NAT_PRIORITY, Port};

/// What a chain makes of a packet that one of ours with the same priority may see first.
pub(super) struct EqualPriorityChain<'a> {
    base: &'a BaseChain,
    flow: Flow,
    step: Option<usize>,
    at: PacketState,
    to: Routed,
    routed: Vec<Looked<'a>>,
}

impl<'a> Walker<'a, '_> {
    /// The chains of a hook behind ours; `None` if none of them decides.
    pub(super) fn later(&mut self, stage: Stage) -> Option<Verdict> {
        self.later_if(stage, &|_| true)
    }

    /// The chains of what leaves: before its source is translated, and behind that. `None` if none of them
    /// decides.
    pub(super) fn postrouting(&mut self) -> Option<Verdict> {
        let is_before = |base: &BaseChain| base.place().0 <= SOURCE_NAT_PRIORITY;
        let verdict = self.later_if(Stage::Postrouting, &is_before);
        verdict.or_else(|| {
            self.has_source = true;
            self.untranslated();
            self.later_if(Stage::Postrouting, &|base| !is_before(base))
        })
    }

    fn later_if(&mut self, stage: Stage, is_met: &dyn Fn(&BaseChain) -> bool) -> Option<Verdict> {
        let hook = stage.chain();
        let rules = self.rules;
        for base in self.order.of(&rules.later).into_iter().filter(|base| base.stage == stage && is_met(base))
        {
            if base.is_nat && self.is_past_source_nat() {
                continue;
            }
            let position = ChainPosition {
                hook,
                table: &base.table,
                chains: &base.chains,
                chain: &base.chain,
                depth: 0,
            };
            let flow =
                self.routed_after(position, Kind::of(base), |walker| walker.rules(position, &base.rules));
            let last = self.steps.len().checked_sub(1);
            self.has_source |= flow == Flow::Accept && last.is_some_and(|last| self.translates(last));
            match flow {
                Flow::NoRoute => return Some(self.unroutable()),
                Flow::Drop => self.later = last.filter(|_| self.because.is_none()),
                Flow::Taken => {
                    self.later = last;
                    let step = last.and_then(|last| self.steps.get(last))?;
                    if step.effect != Some(Effect::Rejects) {
                        return Some(Verdict::TakenByForeignRule);
                    }
                }
                Flow::Continue | Flow::Return if self.obeys(base.drops) => {
                    self.dropped_by_policy(&base.table, &base.chain);
                }
                Flow::Continue | Flow::Return | Flow::Accept | Flow::Redirect(_) | Flow::Tproxy(_) => {
                    continue;
                }
            }
            return Some(Verdict::Dropped);
        }
        None
    }

    /// Whether the chains that translate sources do not see the packet: they see the first one of a
    /// connection, once.
    fn is_past_source_nat(&self) -> bool {
        self.has_source || self.packet.state != ConnectionState::New || !self.at.has_connection()
    }

    fn translates(&self, step: usize) -> bool {
        self.steps.get(step).and_then(|step| step.effect.as_ref()).is_some_and(Effect::translates)
    }

    /// The base chains of other programs' tables with a priority in a range, and those of nat with the table
    /// of nat; `None` if none of them decides.
    pub(super) fn before(&mut self, hook: Hook, (last, next): (i32, i32)) -> Option<Flow> {
        let rules = self.rules;
        // All of nat have one place, and their order there.
        let has_place = |base: &BaseChain| match next {
            NAT_PRIORITY if base.is_nat => base.priority <= NAT_PRIORITY,
            _ if base.is_nat => last == NAT_PRIORITY && base.priority > NAT_PRIORITY,
            _ => self.order.is_between(base.priority, last, next),
        };
        let is_met = |base: &&BaseChain| base.stage == hook.into() && has_place(base);
        let met: Vec<&BaseChain> = self.order.of(&rules.before).into_iter().filter(is_met).collect();
        for base in met {
            if base.is_nat && self.is_past_nat() {
                continue;
            }
            if base.priority >= CONNTRACK_PRIORITY {
                self.tracks();
            }
            let position = ChainPosition {
                hook: base.stage.chain(),
                table: &base.table,
                chains: &base.chains,
                chain: &base.chain,
                depth: 0,
            };
            let (at, to, routed) = (self.at.clone(), self.to, self.routed.len());
            let flow =
                self.routed_after(position, Kind::of(base), |walker| walker.rules(position, &base.rules));
            let step = self.steps.len().checked_sub(1);
            if Self::is_beside_ours(base) && matches!(flow, Flow::Drop | Flow::Taken | Flow::Redirect(_)) {
                self.uncertain.extend(step);
                let (at, to) = (std::mem::replace(&mut self.at, at), std::mem::replace(&mut self.to, to));
                let routed = self.routed.split_off(routed);
                self.beside.get_or_insert(EqualPriorityChain { base, flow, step, at, to, routed });
            } else if let Some(flow) = self.ended_by(base, flow, step) {
                return Some(flow);
            }
        }
        None
    }

    /// What our chain of nat has let pass, another one with its priority sees in any case.
    pub(super) fn beside(&mut self) -> Option<Flow> {
        let EqualPriorityChain { base, flow, step, at, to, routed } = self.beside.take()?;
        if self.is_past_nat() {
            return None;
        }
        self.uncertain.retain(|uncertain| Some(*uncertain) != step);
        (self.at, self.to) = (at, to);
        self.routed.extend(routed);
        let flow = self.ended_by(base, flow, step)?;
        // Rules of ours were tried behind it.
        self.later = step.filter(|_| flow == Flow::Taken).or(self.later);
        Some(flow)
    }

    /// How a base chain ends the hook, by its last step; `None` if the packet goes on.
    fn ended_by(&mut self, base: &'a BaseChain, flow: Flow, step: Option<usize>) -> Option<Flow> {
        let rejects = step
            .and_then(|step| self.steps.get(step))
            .is_some_and(|step| step.effect == Some(Effect::Rejects));
        match flow {
            Flow::Taken | Flow::Redirect(_) if base.is_nat && self.socket.is_some() => {
                self.translated_behind_tproxy(step);
                None
            }
            Flow::Taken if !rejects => Some(Flow::Taken),
            Flow::Redirect(_) => {
                self.is_translated = true;
                Some(flow)
            }
            Flow::NoRoute => Some(flow),
            Flow::Drop | Flow::Taken => {
                self.later = step.filter(|_| self.because.is_none());
                Some(Flow::Drop)
            }
            Flow::Continue | Flow::Return if self.obeys(base.drops) => {
                self.dropped_by_policy(&base.table, &base.chain);
                Some(Flow::Drop)
            }
            Flow::Tproxy(port) => {
                self.gets_socket(port);
                None
            }
            Flow::Continue | Flow::Return | Flow::Accept => None,
        }
    }

    /// The last rule that was tried gives the packet the socket on a port, in the place of another one that
    /// it has.
    pub(super) fn gets_socket(&mut self, port: Port) {
        self.socket = Some(Socket { port, by: self.steps.len().saturating_sub(1) });
    }

    /// A rule of nat gives another destination to a packet that has its socket already.
    pub(super) fn translated_behind_tproxy(&mut self, step: Option<usize>) {
        (self.translated_by, self.is_translated) = (step, true);
        self.uncertain.extend(step.filter(|_| self.has_unknown_destination));
    }
}
