//! The rules of one chain, and of those that it jumps to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::super::connection::Connection;
use super::super::entry::Entry;
use super::super::field_match::Facts;
use super::super::foreign_rule::{Applies, applies};
use super::super::listener::{Transparent, transparent};
use super::super::matching::{NO_SOCKET, PacketState};
use super::super::rules::{INPUT, POSTROUTING};
use super::{ChainPosition, Flow, Match, Step, Walker};
use crate::config::ConnectionState;
use crate::live_rules::{Effect, MarkChange, Meaning, To, Translation, Zone};
use crate::model::{Hook, Mark, Port, Statement, Table, Target};

/// Deepest jumps that are followed; the kernel allows 16 in nf_tables.
const DEEPEST: usize = 64;

/// Whether a table has the name of one that we write to: tables of other programs have that of their family,
/// too.
fn is_shared(table: &str) -> bool {
    Table::ALL.iter().any(|known| known.name() == table)
}

/// What is left of a foreign rule that has no effect: it may lead to a chain of ours.
fn only_jump(effect: Effect) -> Option<Effect> {
    match effect {
        Effect::Chain { name, .. } => Some(Effect::Chain { name, is_goto: false }),
        Effect::Known(Target::Jump(_)) => Some(effect),
        Effect::Continues
        | Effect::ChangesMark(_)
        | Effect::GivesSocket(..)
        | Effect::Known(_)
        | Effect::Marks
        | Effect::Queues { .. }
        | Effect::Rejects
        | Effect::RewritesEnds
        | Effect::SetsZone(_)
        | Effect::Takes
        | Effect::ToSocket { .. }
        | Effect::Translates(_)
        | Effect::TranslatesSource
        | Effect::Untracks => None,
    }
}

impl<'a> Walker<'a, '_> {
    pub(super) fn rules(&mut self, position: ChainPosition<'a>, rules: &'a [Entry]) -> Flow {
        for rule in rules {
            let number = self.steps.len();
            let found = self.matches(rule);
            let is_chosen = self.chosen.contains(&number);
            let is_assumed = is_chosen && matches!(found, Match::Maybe(_));
            let matches = if is_assumed { Match::Matches } else { found };
            let ChainPosition { hook, table, chain, .. } = position;
            let is_certain = matches == Match::Matches;
            let is_skipped = self.order.skips(rule) && !(is_chosen && self.order.is_of_one_mark());
            let effect = (!matches!(matches, Match::Mismatch(_))).then(|| self.effect(position, rule));
            let effect = if is_skipped { effect.and_then(only_jump) } else { effect };
            self.steps.push(Step { hook, table, chain, rule, matches, effect: effect.clone() });
            let flow = match effect {
                None => Flow::Continue,
                Some(effect) if is_certain => {
                    let flow = self.target(position, effect);
                    // To another program's port.
                    let is_taken = |port| rule.is_foreign() && !self.rules.has_proxy_port(port);
                    if matches!(flow, Flow::Redirect(port) if is_taken(port)) { Flow::Taken } else { flow }
                }
                // What the chain does to marks is tried, too.
                Some(effect @ Effect::Chain { .. }) if self.order.is_of_one_mark() => {
                    self.target(position, effect);
                    Flow::Continue
                }
                Some(effect) => {
                    if self.may_decide(position, effect) {
                        self.uncertain.push(number);
                    }
                    Flow::Continue
                }
            };
            if flow != Flow::Continue {
                return flow;
            }
        }
        Flow::Continue
    }

    fn matches(&self, rule: &Entry) -> Match {
        // In nftables a test of the owner fails without a socket, negated or not.
        if rule.is_native && self.at.process.is_none() && rule.rule.tests_owner() {
            return Match::Mismatch(self.at.words.of(|| NO_SOCKET.to_owned()));
        }
        // What rules of ours test is known.
        let open = if rule.is_foreign() { self.open } else { &[] };
        let facts = Facts { open, ..self.facts() };
        match applies((rule.tests(), rule.rule.unread()), &self.at, facts) {
            Applies::Yes => Match::Matches,
            Applies::No(mismatch) => Match::Mismatch(mismatch),
            Applies::Maybe(unknown) => Match::Maybe(unknown),
        }
    }

    fn facts(&self) -> Facts<'a> {
        let begins = self.packet.state == ConnectionState::New;
        let begun = || Connection::begun((self.packet.source, self.packet.destination), &self.at);
        let connection = self.connection.or_else(|| begins.then(begun));
        Facts { fib: self.routing.fib, connection, open: &[] }
    }

    fn effect(&self, position: ChainPosition<'_>, rule: &Entry) -> Effect {
        match &rule.rule.meaning {
            Meaning::Modelled(Statement { target: Target::Tproxy { port, mark }, .. })
                if rule.is_foreign() =>
            {
                let is_of_nftables = rule.is_native && is_shared(position.table);
                self.to_socket(Some(*port), Some(MarkChange::to(*mark)), is_of_nftables)
            }
            Meaning::Modelled(statement) => Effect::Known(statement.target),
            Meaning::Read(reading) => {
                let (effect, target) = (&reading.effect, rule.rule.target());
                if let Effect::ToSocket { port, mark, drops } = effect {
                    self.to_socket(*port, *mark, rule.is_native && !drops)
                } else if !effect.is_modelled() && position.chains.named.contains_key(target) {
                    // A chain of nftables may have the name of a target of iptables.
                    Effect::Chain { name: target.to_owned(), is_goto: effect.is_goto() }
                } else {
                    effect.clone()
                }
            }
        }
    }

    /// Without a socket a rule of nftables ends, and one of iptables drops the packet.
    fn to_socket(&self, port: Option<Port>, mark: Option<MarkChange>, is_of_nftables: bool) -> Effect {
        let found = transparent(self.routing.listeners, self.at.transport, port.map(Port::number));
        match (found, port) {
            (Transparent::Is, Some(port)) => Effect::GivesSocket(port, mark),
            (Transparent::IsNot, _) if is_of_nftables => Effect::Continues,
            (Transparent::IsNot, _) => Effect::Known(Target::Drop),
            (Transparent::Is | Transparent::MayBe, _) => {
                Effect::ToSocket { port, mark, drops: !is_of_nftables }
            }
        }
    }

    /// Whether a rule makes a difference if it matches. What is in a chain is tried with a copy of the
    /// packet.
    fn may_decide(&self, position: ChainPosition<'a>, effect: Effect) -> bool {
        let mut copy = Walker {
            at: self.at.clone(),
            steps: Vec::new(),
            uncertain: Vec::new(),
            routed: Vec::new(),
            because: None,
            dropped_by: None,
            beside: None,
            chosen: &[],
            ..*self
        };
        let flow = copy.target(position, effect);
        let changed = |at: &PacketState| (at.mark, at.connmark, at.has_known_marks, at.is_tracked, at.zone);
        flow != Flow::Continue || !copy.uncertain.is_empty() || changed(&copy.at) != changed(&self.at)
    }

    fn target(&mut self, position: ChainPosition<'a>, effect: Effect) -> Flow {
        match effect {
            Effect::Continues => Flow::Continue,
            Effect::Rejects | Effect::Takes => Flow::Taken,
            Effect::GivesSocket(port, mark) => {
                if let Some(mark) = mark {
                    self.at.change_marks(mark);
                }
                Flow::Tproxy(port)
            }
            Effect::ToSocket { port, mark, .. } if self.is_chosen() => {
                port.map_or(Flow::Taken, |port| self.target(position, Effect::GivesSocket(port, mark)))
            }
            Effect::Translates(translation) => self.translated(position.hook, translation),
            Effect::TranslatesSource => {
                let unknown = Translation { address: To::Unknown, port: To::Unknown };
                self.translated(position.hook, unknown)
            }
            Effect::Queues { bypass: false } => Flow::Taken,
            Effect::Queues { .. } | Effect::RewritesEnds if self.is_chosen() => Flow::Taken,
            Effect::Queues { .. }
            | Effect::RewritesEnds
            | Effect::ToSocket { .. }
            | Effect::SetsZone(None) => {
                self.uncertain.extend(self.steps.len().checked_sub(1));
                Flow::Continue
            }
            // A mark that no rule of ours gives stands for any.
            Effect::Marks if self.order.is_of_one_mark() => {
                let other = self.routing.mark.map_or(Mark(u32::MAX), |mark| Mark(!mark.0));
                (self.at.mark, self.at.connmark) = (other, other);
                Flow::Continue
            }
            Effect::Marks => {
                self.at.has_known_marks = false;
                Flow::Continue
            }
            Effect::ChangesMark(change) => {
                self.at.change_marks(change);
                Flow::Continue
            }
            Effect::Untracks => {
                if !self.at.is_seen && !std::mem::replace(&mut self.at.is_assigned, true) {
                    self.at.is_tracked = false;
                }
                Flow::Continue
            }
            Effect::SetsZone(Some(zone)) => self.zone(zone),
            Effect::Chain { name, is_goto } => {
                let flow = self.chain(position, &name);
                if is_goto && flow == Flow::Continue { Flow::Return } else { flow }
            }
            Effect::Known(target) => self.known(position, target),
        }
    }

    /// Whether this walk assumes that the last rule that was tried has an effect that it may have.
    fn is_chosen(&self) -> bool {
        self.chosen.iter().any(|step| step + 1 == self.steps.len())
    }

    fn known(&mut self, position: ChainPosition<'a>, target: Target) -> Flow {
        match target {
            Target::Accept => Flow::Accept,
            Target::Drop => Flow::Drop,
            Target::Return => Flow::Return,
            Target::Redirect(port) => {
                self.redirected(position.hook, port);
                Flow::Redirect(port)
            }
            Target::Tproxy { port, mark } => {
                self.at.mark = mark;
                Flow::Tproxy(port)
            }
            Target::Jump(chain) => self.chain(position, chain.name()),
            // None of these ends a chain.
            Target::ConntrackZone(zone) => self.zone(Zone::both(zone)),
            Target::SetMark(mark) => self.mark(mark),
            // Without a connection there is no mark of it.
            Target::RestoreMark | Target::SaveMark if !self.at.has_connection() => Flow::Continue,
            Target::RestoreMark => self.mark(self.at.connmark),
            Target::SaveMark => {
                self.at.connmark = self.at.mark;
                Flow::Continue
            }
        }
    }

    /// The first one counts. To `ct zone set` of nftables, unlike the target `CT`, a packet that is not
    /// tracked has none yet.
    fn zone(&mut self, zone: Zone) -> Flow {
        let is_of_iptables = |step: &Step<'_>| ["ip raw", "ip6 raw"].contains(&step.table);
        let is_native = self.steps.last().is_some_and(|step| step.rule.is_native && !is_of_iptables(step));
        let is_free = !self.at.is_assigned || (is_native && !self.at.is_tracked);
        if !self.at.is_seen && is_free {
            (self.at.is_assigned, self.at.is_tracked, self.at.zone) = (true, true, zone);
        }
        Flow::Continue
    }

    /// `REDIRECT` sends what a process sends to the loopback address, and what arrives to one of the
    /// interface.
    fn redirected(&mut self, hook: &str, port: Port) {
        self.at.destination = (self.own_address(hook), port.number()).into();
    }

    fn own_address(&self, hook: &str) -> IpAddr {
        let old = self.at.destination.ip();
        if hook == Hook::Output.name() {
            return if old.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        }
        let interface = self.at.in_interface.as_deref().unwrap_or_default();
        self.routing.own_address(interface, old).unwrap_or(old)
    }

    /// A foreign rule gives the packet another destination: the proxy, or one where it is not followed.
    fn translated(&mut self, hook: &str, Translation { address, port }: Translation) -> Flow {
        // There it is another source, which is not followed.
        if [INPUT, POSTROUTING].contains(&hook) {
            return Flow::Accept;
        }
        let old = self.at.destination;
        let address = match address {
            To::Same => Some(old.ip()),
            To::Own => Some(self.own_address(hook)),
            To::This(address) => Some(address),
            To::Unknown => None,
        };
        let port = match port {
            To::Same | To::Own => Some(old.port()),
            To::This(port) => Some(port),
            To::Unknown => None,
        };
        let Some(to) = address.zip(port).map(SocketAddr::from) else {
            self.has_unknown_destination = true;
            return Flow::Taken;
        };
        self.at.destination = to;
        let is_own = to.ip().is_loopback() || self.routing.has_own(to.ip());
        let port = Port::new(to.port()).filter(|port| is_own && self.rules.has_proxy_port(*port));
        port.map_or(Flow::Taken, Flow::Redirect)
    }

    fn chain(&mut self, position: ChainPosition<'a>, name: &str) -> Flow {
        let Some((name, rules)) = position.chains.named.get_key_value(name) else { return Flow::Continue };
        if position.depth == DEEPEST {
            return Flow::Continue;
        }
        let flow = self.rules(ChainPosition { chain: name, depth: position.depth + 1, ..position }, rules);
        if flow == Flow::Return { Flow::Continue } else { flow }
    }

    const fn mark(&mut self, mark: Mark) -> Flow {
        self.at.mark = mark;
        Flow::Continue
    }
}
