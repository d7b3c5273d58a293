//! A packet's way through the rules, in the order of the kernel's hooks.
//!
//! `OUTPUT` (packets of the pod's processes), then, for what stays in the pod, once more over `lo` through `PREROUTING`;
//! packets from outside begin with `PREROUTING`. At each hook the tables follow each other: raw, connection tracking,
//! mangle, nat.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::decisive::decisive;
use super::foreign_rule::{Applies, Does, applies, does};
use super::matching::{AtHook, mismatch};
use super::packet::Packet;
use super::rules::{Chains, Entry, Rules};
use crate::config::ConnectionState;
use crate::model::{Hook, Mark, Matcher, Port, Statement, Table, Target};

/// Deepest jumps that are followed; the kernel allows 16 in nf_tables.
const DEEPEST: usize = 64;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to this port of the proxy.
    Captured(Port),
    /// It is thrown away.
    Dropped,
    /// It goes where the first packet of its connection went.
    LikeItsConnection,
    /// It is the first packet of a connection, and its mark routes it to the pod, where nothing expects it.
    Misrouted,
    /// It goes where it was sent.
    NotCaptured,
    /// A foreign rule decides where it goes.
    TakenByForeignRule,
    /// Its mark routes it to the socket of the proxy that has its connection.
    ToProxySocket,
}

/// Whether a rule is for the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// It is.
    Matches,
    /// It may be: these words of a foreign rule cannot be evaluated.
    Maybe(String),
    /// It is not, and why.
    Mismatch(String),
}

/// One rule that was tried.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// At this hook.
    pub hook: Hook,
    /// In this table.
    pub table: Table,
    /// In this chain.
    pub chain: &'a str,
    /// The rule.
    pub rule: &'a Entry,
    /// Whether it is for the packet.
    pub matches: Match,
    /// What it does; `None` if it is not for the packet.
    pub(super) does: Option<Does>,
}

/// The rules that a packet meets, and what becomes of it.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    /// Every rule that was tried, in order.
    pub steps: Vec<Step<'a>>,
    /// The outcome, if no rule matches of which that is not known.
    pub verdict: Verdict,
    /// The number of the step that decides; `None` if there is none.
    pub decided_by: Option<usize>,
    /// Steps with rules that may decide something else.
    pub uncertain: Vec<usize>,
}

impl<'a> Walk<'a> {
    /// The step that decides.
    #[must_use]
    pub fn decisive(&self) -> Option<&Step<'a>> {
        self.steps.get(self.decided_by?)
    }
}

/// How a table leaves a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// To the next rule, or the next table.
    Continue,
    /// Out of the chain.
    Return,
    /// Out of the table.
    Accept,
    Drop,
    Redirect(Port),
    Tproxy(Port),
    /// Out of our hands.
    Taken,
}

/// Follows `packet` through the rules of its family; `routed_mark` is the one that policy routing sends to `lo`.
#[must_use]
pub fn walk<'a>(rules: &'a Rules, packet: &Packet, routed_mark: Option<Mark>) -> Walk<'a> {
    let at = AtHook {
        process: packet.process,
        transport: packet.transport,
        source: packet.source,
        destination: packet.destination,
        in_interface: packet.is_inbound.then(|| packet.interface.clone()),
        out_interface: (!packet.is_inbound).then(|| packet.interface.clone()),
        mark: packet.mark,
        connmark: packet.connmark,
        state: packet.state,
        is_tracked: true,
    };
    let is_translated = packet.state != ConnectionState::New;
    let (steps, uncertain) = (Vec::new(), Vec::new());
    let mut walker = Walker { rules, at, packet, steps, uncertain, is_translated, has_known_marks: true };
    let verdict = walker.verdict(packet, routed_mark);
    let decided_by = decisive(&walker.steps, packet, verdict);
    let Walker { steps, uncertain, .. } = walker;
    Walk { steps, verdict, decided_by, uncertain }
}

struct Walker<'a, 'b> {
    rules: &'a Rules,
    packet: &'b Packet,
    at: AtHook,
    steps: Vec<Step<'a>>,
    uncertain: Vec<usize>,
    /// Whether nat has decided: it sees the first packet of a connection, once.
    is_translated: bool,
    /// Whether the marks are known: a foreign rule may have set others.
    has_known_marks: bool,
}

/// Where in a table the walk is.
#[derive(Clone, Copy)]
struct Place<'a> {
    hook: Hook,
    table: Table,
    chains: &'a Chains,
    chain: &'a str,
    depth: usize,
}

impl<'a> Walker<'a, '_> {
    fn verdict(&mut self, packet: &Packet, routed_mark: Option<Mark>) -> Verdict {
        let mut captured = None;
        if !packet.is_inbound {
            match self.hook(Hook::Output) {
                Flow::Drop => return Verdict::Dropped,
                Flow::Taken => return Verdict::TakenByForeignRule,
                Flow::Redirect(port) => captured = Some(port),
                Flow::Continue | Flow::Return | Flow::Accept | Flow::Tproxy(_) => {}
            }
            if captured.is_none() && !packet.is_local && routed_mark != Some(self.at.mark) {
                return ended(packet);
            }
            // The kernel removes the owner with the socket when the packet passes `lo`.
            (self.at.process, self.at.out_interface) = (None, None);
            self.at.in_interface = Some("lo".to_owned());
        }
        match self.hook(Hook::Prerouting) {
            Flow::Drop => Verdict::Dropped,
            Flow::Taken => Verdict::TakenByForeignRule,
            Flow::Redirect(port) | Flow::Tproxy(port) => Verdict::Captured(port),
            Flow::Continue | Flow::Return | Flow::Accept => match captured {
                Some(port) => Verdict::Captured(port),
                None if routed_mark == Some(self.at.mark) => match packet.state {
                    ConnectionState::New => Verdict::Misrouted,
                    ConnectionState::Established | ConnectionState::Invalid => Verdict::ToProxySocket,
                },
                None => ended(packet),
            },
        }
    }

    /// All tables at one hook.
    fn hook(&mut self, hook: Hook) -> Flow {
        let mut outcome = Flow::Continue;
        for table in Table::ALL {
            if table == Table::Nat && std::mem::replace(&mut self.is_translated, true) {
                continue;
            }
            let Some(chains) = self.rules.tables.get(&table) else { continue };
            let place = Place { hook, table, chains, chain: hook.name(), depth: 0 };
            let rules = chains.hooks.get(&hook).map_or(&[][..], Vec::as_slice);
            let flow = self.rules(place, rules);
            let is_dropped = matches!(flow, Flow::Continue | Flow::Return) && chains.drops.contains(&hook);
            match flow {
                Flow::Drop | Flow::Taken => return flow,
                _ if is_dropped => return Flow::Drop,
                // What has its socket by TPROXY stays there, whatever nat does.
                Flow::Redirect(_) if matches!(outcome, Flow::Tproxy(_)) => {}
                Flow::Redirect(port) => {
                    self.redirected(port);
                    outcome = flow;
                }
                Flow::Tproxy(_) => outcome = flow,
                Flow::Continue | Flow::Return | Flow::Accept => {}
            }
        }
        outcome
    }

    /// `REDIRECT` sends what a process sends to the loopback address.
    fn redirected(&mut self, port: Port) {
        let v4 = self.at.destination.is_ipv4();
        let loopback: IpAddr = if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        self.at.destination = (loopback, port.number()).into();
    }

    fn rules(&mut self, place: Place<'a>, rules: &'a [Entry]) -> Flow {
        for rule in rules {
            let matches = self.matches(rule);
            let Place { hook, table, chain, .. } = place;
            let is_certain = matches == Match::Matches;
            let does = (!matches!(matches, Match::Mismatch(_))).then(|| self.does(place, rule));
            let number = self.steps.len();
            self.steps.push(Step { hook, table, chain, rule, matches, does: does.clone() });
            let flow = match does {
                None => Flow::Continue,
                Some(does) if is_certain => {
                    let flow = self.target(place, does);
                    // To another program's port.
                    let is_taken = matches!(flow, Flow::Redirect(_) | Flow::Tproxy(_)) && rule.is_foreign();
                    if is_taken { Flow::Taken } else { flow }
                }
                Some(does) => {
                    if self.may_decide(place, does) {
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
        match &rule.statement {
            Some(Statement { matcher, .. })
                if !self.has_known_marks && (matcher.mark.is_some() || matcher.connmark.is_some()) =>
            {
                let apart = Matcher { mark: None, connmark: None, ..matcher.clone() };
                let unknown = || Match::Maybe("a foreign rule may have set the mark".to_owned());
                mismatch(&apart, &self.at).map_or_else(unknown, Match::Mismatch)
            }
            Some(statement) => match mismatch(&statement.matcher, &self.at) {
                None => Match::Matches,
                Some(mismatch) => Match::Mismatch(mismatch),
            },
            None => match applies(self.packet.family(), &rule.text(), &self.at) {
                Applies::Yes => Match::Matches,
                Applies::No(mismatch) => Match::Mismatch(mismatch),
                Applies::Maybe(unknown) => Match::Maybe(unknown),
            },
        }
    }

    fn does(&self, place: Place<'_>, rule: &Entry) -> Does {
        let is_chain = |name: &str| place.chains.named.contains_key(name);
        match &rule.statement {
            Some(statement) => Does::Known(statement.target),
            None => does(self.packet.family(), &rule.text(), is_chain),
        }
    }

    /// Whether a rule ends the walk if it matches. What is in a chain is tried with a copy of the packet.
    fn may_decide(&mut self, place: Place<'a>, does: Does) -> bool {
        let mut copy = Walker { at: self.at.clone(), steps: Vec::new(), uncertain: Vec::new(), ..*self };
        let flow = copy.target(place, does);
        let changes = (copy.at.mark, copy.at.connmark) != (self.at.mark, self.at.connmark);
        self.has_known_marks &= copy.has_known_marks && !changes;
        flow != Flow::Continue || !copy.uncertain.is_empty() || copy.is_translated != self.is_translated
    }

    fn target(&mut self, place: Place<'a>, does: Does) -> Flow {
        match does {
            Does::Continues => Flow::Continue,
            Does::Takes => Flow::Taken,
            Does::MayTake => {
                self.uncertain.extend(self.steps.len().checked_sub(1));
                Flow::Continue
            }
            Does::Marks => {
                self.has_known_marks = false;
                Flow::Continue
            }
            Does::Untracks => {
                (self.is_translated, self.at.is_tracked) = (true, false);
                Flow::Continue
            }
            Does::Chain { name, goes } => {
                let flow = self.chain(place, &name);
                if goes && flow == Flow::Continue { Flow::Return } else { flow }
            }
            Does::Known(target) => self.known(place, target),
        }
    }

    fn known(&mut self, place: Place<'a>, target: Target) -> Flow {
        match target {
            Target::Accept => Flow::Accept,
            Target::Drop => Flow::Drop,
            Target::Return => Flow::Return,
            Target::Redirect(port) => Flow::Redirect(port),
            Target::Tproxy { port, mark } => {
                self.at.mark = mark;
                Flow::Tproxy(port)
            }
            Target::Jump(chain) => self.chain(place, chain.name()),
            // None of these ends a chain.
            Target::ConntrackZone(_) => Flow::Continue,
            Target::SetMark(mark) => self.mark(mark),
            Target::RestoreMark => self.mark(self.at.connmark),
            Target::SaveMark => {
                self.at.connmark = self.at.mark;
                Flow::Continue
            }
        }
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

/// What becomes of a packet that no rule takes.
const fn ended(packet: &Packet) -> Verdict {
    match packet.state {
        ConnectionState::Established => Verdict::LikeItsConnection,
        ConnectionState::New | ConnectionState::Invalid => Verdict::NotCaptured,
    }
}
