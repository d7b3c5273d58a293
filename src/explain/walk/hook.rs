//! What a packet meets at one hook, and where it is routed there.

use super::super::routing::{Looked, Routed};
use super::super::rules::BaseChain;
use super::order::Order;
use super::{ChainPosition, Flow, Walker};
use crate::model::{CONNTRACK_PRIORITY, Hook, NAT_PRIORITY, Table};

/// What a base chain or a table is for, as far as it matters for the packets that it has let pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A chain or table that routes no packet again.
    Filter,
    /// The first packet of a connection, which is routed again if it gets another destination.
    Nat,
    /// What leaves, which is routed again if it gets another mark.
    Route,
}

impl Kind {
    pub(super) const fn of(base: &BaseChain) -> Self {
        match (base.is_nat, base.reroutes) {
            (true, _) => Self::Nat,
            (false, true) => Self::Route,
            (false, false) => Self::Filter,
        }
    }
}

impl<'a> Walker<'a, '_> {
    /// All tables at one hook.
    pub(super) fn hook(&mut self, hook: Hook) -> Flow {
        let mut outcome = Flow::Continue;
        let mut last = i32::MIN;
        for table in Table::ALL {
            let next = table.priority();
            if let Some(flow) = self.before(hook, (last, next)) {
                return flow;
            }
            last = next;
            if next > CONNTRACK_PRIORITY {
                self.tracks();
            }
            if table == Table::Nat && self.is_past_nat() {
                self.translated_as_before(hook);
                continue;
            }
            let flow = self.table(hook, table);
            match flow {
                // What has its socket by TPROXY stays there, whatever nat does.
                Flow::Taken | Flow::Redirect(_) if self.socket.is_some() && table == Table::Nat => {
                    self.translated_behind_tproxy(self.steps.len().checked_sub(1));
                }
                Flow::Drop | Flow::Taken | Flow::NoRoute => return flow,
                Flow::Redirect(_) => (outcome, self.is_translated) = (flow, true),
                Flow::Tproxy(port) => self.gets_socket(port),
                Flow::Continue | Flow::Return | Flow::Accept => {}
            }
        }
        // What nat has not decided by then meets its chains beside ours and behind.
        let flow = self.beside().or_else(|| self.before(hook, (NAT_PRIORITY, i32::MAX)));
        self.is_translated = true;
        flow.unwrap_or_else(|| self.socket.map_or(outcome, |socket| Flow::Tproxy(socket.port)))
    }

    /// A later packet gets the destination that its connection got by its first one.
    fn translated_as_before(&mut self, hook: Hook) {
        let Some(connection) = self.connection.filter(|connection| !connection.is_reply) else { return };
        if !self.at.has_connection() || self.at.destination != connection.original.1 {
            return;
        }
        self.at.destination = connection.reply.0;
        if hook == Hook::Output && connection.original.1 != connection.reply.0 {
            self.to = self.route();
        }
    }

    /// Whether nat does not see the packet, or has decided.
    pub(super) fn is_past_nat(&self) -> bool {
        self.is_translated || !self.at.has_connection()
    }

    /// The rules of one table, and its policy.
    fn table(&mut self, hook: Hook, table: Table) -> Flow {
        let rules = self.rules;
        let Some(chains) = rules.tables.get(&table) else { return Flow::Continue };
        let position =
            ChainPosition { hook: hook.name(), table: table.name(), chains, chain: hook.name(), depth: 0 };
        let kind = match table {
            Table::Raw => Kind::Filter,
            Table::Mangle => Kind::Route,
            Table::Nat => Kind::Nat,
        };
        let rules = chains.hooks.get(&hook).map_or(&[][..], Vec::as_slice);
        let flow = self.routed_after(position, kind, |walker| walker.rules(position, rules));
        if matches!(flow, Flow::Continue | Flow::Return) && self.obeys(chains.drops.contains(&hook)) {
            self.dropped_by_policy(table.name(), hook.name());
            return Flow::Drop;
        }
        flow
    }

    /// What leaves is routed again behind a chain that has changed it.
    pub(super) fn routed_after(
        &mut self,
        position: ChainPosition<'a>,
        kind: Kind,
        chain: impl FnOnce(&mut Self) -> Flow,
    ) -> Flow {
        let before = (self.at.mark, self.at.has_known_marks, self.at.destination);
        let flow = chain(self);
        let is_changed = match kind {
            Kind::Filter => false,
            Kind::Nat => self.at.destination != before.2,
            Kind::Route => (self.at.mark, self.at.has_known_marks, self.at.destination) != before,
        };
        if position.hook != Hook::Output.name() || !is_changed || matches!(flow, Flow::Drop | Flow::Taken) {
            return flow;
        }
        self.to = self.route();
        match self.to {
            Routed::Rejected => Flow::Drop,
            Routed::Nowhere if kind == Kind::Route => Flow::NoRoute,
            Routed::Nowhere | Routed::Own | Routed::Here | Routed::Away => flow,
        }
    }

    /// Where a packet goes that a process sends: what is not bound to an address is looked up without one
    /// first.
    pub(super) fn first_route(&mut self) -> Routed {
        let looked = self.routing.look_first(self.packet).filter(|_| !self.order.is_of_one_mark());
        let Some(looked) = looked else { return self.routing.routed_by_options(self.packet, &self.at) };
        let last = looked.last().map_or(Routed::Nowhere, Looked::routed);
        let last = self.rejected_by(last, looked.last());
        self.routed.extend(looked);
        last
    }

    /// Where the packet goes as it is now.
    pub(super) fn route(&mut self) -> Routed {
        let in_interface = if self.packet.is_inbound { self.at.in_interface.as_deref() } else { Some("lo") };
        let mark = self.at.has_known_marks.then_some(self.at.mark);
        let looked = self.routing.look(&self.at, mark, in_interface.unwrap_or_default());
        let looked = looked.filter(|_| !self.order.is_of_one_mark());
        let Some(looked) = looked else { return self.routing.routed_by_options(self.packet, &self.at) };
        let routed = self.rejected_by(looked.routed(), Some(&looked));
        self.routed.push(looked);
        routed
    }

    /// Where a packet goes, if the kernel accepts the route: what it throws away instead has a reason.
    fn rejected_by(&mut self, routed: Routed, looked: Option<&Looked<'_>>) -> Routed {
        if routed == Routed::Rejected && self.order == Order::OnlyOurs {
            // A policy rule or route that rejects it is as foreign as a rule that drops it.
            return self.routing.routed_by_options(self.packet, &self.at);
        }
        let because = match routed {
            Routed::Rejected => {
                looked.and_then(Looked::words).map(|words| format!("policy routing drops it: {words}"))
            }
            Routed::Away if !self.packet.is_inbound => {
                looked.and_then(|looked| self.routing.refuses_source(looked, self.at.source.ip()))
            }
            Routed::Away | Routed::Nowhere | Routed::Own | Routed::Here => return routed,
        };
        if because.is_none() {
            return routed;
        }
        self.because = because;
        Routed::Rejected
    }

    /// Whether of two chains with one priority either may be first: the kernel takes that which was made
    /// last.
    pub(super) const fn is_beside_ours(base: &BaseChain) -> bool {
        base.is_nat && base.priority == NAT_PRIORITY
    }
}
