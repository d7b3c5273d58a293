//! The rules of one chain, and of those that it jumps to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::changes::{Zone, change_marks};
use super::super::field_match::Facts;
use super::super::foreign_rule::{Applies, Effect, applies, effect};
use super::super::matching::{NO_SOCKET, mismatch};
use super::super::rules::Entry;
use super::{Flow, Match, Place, Step, Walker};
use crate::model::{CtState, Hook, Mark, Matcher, Port, Statement, Target};

/// Deepest jumps that are followed; the kernel allows 16 in nf_tables.
const DEEPEST: usize = 64;

impl<'a> Walker<'a, '_> {
    pub(super) fn rules(&mut self, place: Place<'a>, rules: &'a [Entry]) -> Flow {
        for rule in rules {
            let matches = self.matches(rule);
            let Place { hook, table, chain, .. } = place;
            let is_certain = matches == Match::Matches;
            let effect = (!matches!(matches, Match::Mismatch(_))).then(|| self.effect(place, rule));
            let number = self.steps.len();
            self.steps.push(Step { hook, table, chain, rule, matches, effect: effect.clone() });
            let flow = match effect {
                None => Flow::Continue,
                Some(effect) if is_certain => {
                    let flow = self.target(place, effect);
                    // To another program's port.
                    let is_taken = |port| rule.is_foreign() && !self.rules.has_proxy_port(port);
                    let to_port = match flow {
                        Flow::Redirect(port) | Flow::Tproxy(port) => Some(port),
                        Flow::Continue
                        | Flow::Return
                        | Flow::Accept
                        | Flow::Drop
                        | Flow::Taken
                        | Flow::NoRoute => None,
                    };
                    if to_port.is_some_and(is_taken) { Flow::Taken } else { flow }
                }
                Some(effect) => {
                    if self.may_decide(place, effect) {
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
        if rule.is_native && self.at.process.is_none() && rule.text().contains("-owner ") {
            return Match::Mismatch(NO_SOCKET.to_owned());
        }
        match &rule.statement {
            Some(Statement { matcher, .. })
                if !self.at.is_seen && (matcher.ct_state, matcher.connmark) != (None, None) =>
            {
                let apart = Matcher { ct_state: None, connmark: None, ..matcher.clone() };
                let is_invalid = matcher.ct_state == Some(CtState::Invalid) && matcher.connmark.is_none();
                let untracked = || (!is_invalid).then(|| "connection tracking comes later".to_owned());
                mismatch(&apart, &self.at).or_else(untracked).map_or(Match::Matches, Match::Mismatch)
            }
            Some(Statement { matcher, .. })
                if !self.at.has_known_marks && (matcher.mark.is_some() || matcher.connmark.is_some()) =>
            {
                let apart = Matcher { mark: None, connmark: None, ..matcher.clone() };
                let unknown = || Match::Maybe("a foreign rule may have set the mark".to_owned());
                mismatch(&apart, &self.at).map_or_else(unknown, Match::Mismatch)
            }
            Some(statement) => match mismatch(&statement.matcher, &self.at) {
                None => Match::Matches,
                Some(mismatch) => Match::Mismatch(mismatch),
            },
            None => match applies(&rule.text(), &self.at, self.facts()) {
                Applies::Yes => Match::Matches,
                Applies::No(mismatch) => Match::Mismatch(mismatch),
                Applies::Maybe(unknown) => Match::Maybe(unknown),
            },
        }
    }

    fn facts(&self) -> Facts<'a> {
        Facts { fib: self.routing.fib, is_redirected: self.at.destination != self.packet.destination }
    }

    fn effect(&self, place: Place<'_>, rule: &Entry) -> Effect {
        let is_chain = |name: &str| place.chains.named.contains_key(name);
        match &rule.statement {
            Some(statement) => Effect::Known(statement.target),
            None => effect(self.packet.family(), &rule.text(), is_chain),
        }
    }

    /// Whether a rule ends the walk if it matches. What is in a chain is tried with a copy of the packet.
    fn may_decide(&mut self, place: Place<'a>, effect: Effect) -> bool {
        let mut copy = Walker {
            at: self.at.clone(),
            steps: Vec::new(),
            uncertain: Vec::new(),
            routed: Vec::new(),
            because: None,
            ..*self
        };
        let flow = copy.target(place, effect);
        let (mine, other) = (&mut self.at, &copy.at);
        let changes = (other.mark, other.connmark) != (mine.mark, mine.connmark);
        mine.has_known_marks &= other.has_known_marks && !changes;
        let is_tracked_alike = (other.is_tracked, other.zone) == (mine.is_tracked, mine.zone);
        flow != Flow::Continue || !copy.uncertain.is_empty() || !is_tracked_alike
    }

    fn target(&mut self, place: Place<'a>, effect: Effect) -> Flow {
        match effect {
            Effect::Continues => Flow::Continue,
            Effect::Takes => Flow::Taken,
            Effect::Translates { address, port } => self.translated(address, port),
            Effect::MayTake | Effect::SetsZone(None) => {
                self.uncertain.extend(self.steps.len().checked_sub(1));
                Flow::Continue
            }
            Effect::Marks => {
                self.at.has_known_marks = false;
                Flow::Continue
            }
            Effect::ChangesMark(change) => {
                change_marks(change, &mut self.at);
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
                let flow = self.chain(place, &name);
                if is_goto && flow == Flow::Continue { Flow::Return } else { flow }
            }
            Effect::Known(target) => self.known(place, target),
        }
    }

    fn known(&mut self, place: Place<'a>, target: Target) -> Flow {
        match target {
            Target::Accept => Flow::Accept,
            Target::Drop => Flow::Drop,
            Target::Return => Flow::Return,
            Target::Redirect(port) => {
                self.redirected(place.hook, port);
                Flow::Redirect(port)
            }
            Target::Tproxy { port, mark } => {
                self.at.mark = mark;
                Flow::Tproxy(port)
            }
            Target::Jump(chain) => self.chain(place, chain.name()),
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

    /// The first one counts.
    const fn zone(&mut self, zone: Zone) -> Flow {
        if !self.at.is_seen && !self.at.is_assigned {
            (self.at.is_assigned, self.at.zone) = (true, zone);
        }
        Flow::Continue
    }

    /// `REDIRECT` sends what a process sends to the loopback address, and what arrives to one of the interface.
    fn redirected(&mut self, hook: &str, port: Port) {
        let old = self.at.destination.ip();
        let loopback: IpAddr =
            if old.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let address = if hook == Hook::Output.name() {
            loopback
        } else {
            let interface = self.at.in_interface.as_deref().unwrap_or_default();
            self.routing.own_address(interface, old).unwrap_or(old)
        };
        self.at.destination = (address, port.number()).into();
    }

    /// A foreign rule gives the packet this destination: the proxy, or one that is not followed.
    fn translated(&mut self, address: Option<IpAddr>, port: Option<u16>) -> Flow {
        let own = |address: &IpAddr| address.is_loopback() || self.routing.has_own(*address);
        let is_own = address.is_none() || address.as_ref().is_some_and(own);
        let port = port.and_then(Port::new).filter(|port| is_own && self.rules.has_proxy_port(*port));
        let Some(port) = port else { return Flow::Taken };
        let address = address.unwrap_or(self.at.destination.ip());
        self.at.destination = (address, port.number()).into();
        Flow::Redirect(port)
    }

    fn chain(&mut self, place: Place<'a>, name: &str) -> Flow {
        let Some((name, rules)) = place.chains.named.get_key_value(name) else { return Flow::Continue };
        if place.depth == DEEPEST {
            return Flow::Continue;
        }
        let flow = self.rules(Place { chain: name, depth: place.depth + 1, ..place }, rules);
        if flow == Flow::Return { Flow::Continue } else { flow }
    }

    const fn mark(&mut self, mark: Mark) -> Flow {
        self.at.mark = mark;
        Flow::Continue
    }
}
