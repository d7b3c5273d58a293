//! A packet's way through the rules, in the order of the kernel's hooks.
//!
//! `OUTPUT` (packets of the pod's processes), then, for what stays in the pod, once more over `lo` through `PREROUTING`;
//! packets from outside begin with `PREROUTING`. At each hook the tables follow each other: raw, connection tracking,
//! mangle, nat.

use super::matching::{AtHook, mismatch};
use super::packet::Packet;
use crate::config::{ConnectionState, Mode};
use crate::model::{Chain, FamilyRules, Hook, HookRules, Mark, Port, Rule, Table, Target};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to this port of the proxy.
    Captured(Port),
    /// It is thrown away.
    Dropped,
    /// It goes where it was sent.
    NotCaptured,
    /// It goes where the first packet of its connection went.
    LikeItsConnection,
    /// Its mark routes it to the socket of the proxy that has its connection.
    ToProxySocket,
}

/// One rule that was tried.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// At this hook.
    pub hook: Hook,
    /// In this table.
    pub table: Table,
    /// In this chain of ours; `None` in the shared one.
    pub chain: Option<Chain>,
    /// The rule.
    pub rule: &'a Rule,
    /// Why it is not for the packet; `None` if it is.
    pub mismatch: Option<String>,
}

/// The rules that a packet meets, and what becomes of it.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    /// Every rule that was tried, in order.
    pub steps: Vec<Step<'a>>,
    /// The outcome.
    pub verdict: Verdict,
    /// The rule that decides; `None` if there is none.
    pub decided_by: Option<&'a Rule>,
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
}

/// Follows `packet` through the rules of its family.
#[must_use]
pub fn walk<'a>(rules: &'a FamilyRules, packet: &Packet, mode: Mode) -> Walk<'a> {
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
    };
    let is_translated = packet.state != ConnectionState::New;
    let mut walker = Walker { rules, at, steps: Vec::new(), is_translated };
    let verdict = walker.verdict(packet, mode);
    let decided_by = decisive(&walker.steps, packet, verdict);
    Walk { decided_by, steps: walker.steps, verdict }
}

struct Walker<'a> {
    rules: &'a FamilyRules,
    at: AtHook,
    steps: Vec<Step<'a>>,
    /// Whether nat has decided: it sees the first packet of a connection, once.
    is_translated: bool,
}

impl<'a> Walker<'a> {
    fn verdict(&mut self, packet: &Packet, mode: Mode) -> Verdict {
        let mut captured = None;
        let routed_mark = if let Mode::Tproxy(tproxy) = mode { Some(tproxy.mark) } else { None };
        if !packet.is_inbound {
            match self.hook(Hook::Output) {
                Flow::Drop => return Verdict::Dropped,
                Flow::Redirect(port) => captured = Some(port),
                Flow::Continue | Flow::Return | Flow::Accept | Flow::Tproxy(_) => {}
            }
            let is_routed = routed_mark == Some(self.at.mark);
            if captured.is_none() && !packet.is_local && !is_routed {
                return ended(packet);
            }
            // The kernel removes the owner with the socket when the packet passes `lo`.
            (self.at.process, self.at.out_interface) = (None, None);
            self.at.in_interface = Some("lo".to_owned());
        }
        match self.hook(Hook::Prerouting) {
            Flow::Drop => Verdict::Dropped,
            Flow::Redirect(port) | Flow::Tproxy(port) => Verdict::Captured(port),
            Flow::Continue | Flow::Return | Flow::Accept => match captured {
                Some(port) => Verdict::Captured(port),
                None if routed_mark == Some(self.at.mark) => Verdict::ToProxySocket,
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
            let rules = self.rules.tables.get(&table).and_then(|table| table.hooks.get(&hook));
            match self.rules(hook, table, None, rules.into_iter().flat_map(HookRules::iter)) {
                Flow::Drop => return Flow::Drop,
                decided @ (Flow::Redirect(port) | Flow::Tproxy(port)) => {
                    outcome = decided;
                    if let Flow::Redirect(_) = decided {
                        self.redirected(port);
                    }
                }
                Flow::Continue | Flow::Return | Flow::Accept => {}
            }
        }
        outcome
    }

    /// `REDIRECT` sends what a process sends to the loopback address.
    fn redirected(&mut self, port: Port) {
        let v4 = self.at.destination.is_ipv4();
        let loopback: std::net::IpAddr =
            if v4 { std::net::Ipv4Addr::LOCALHOST.into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        self.at.destination = (loopback, port.number()).into();
    }

    fn rules(
        &mut self,
        hook: Hook,
        table: Table,
        chain: Option<Chain>,
        rules: impl IntoIterator<Item = &'a Rule>,
    ) -> Flow {
        for rule in rules {
            let mismatch = mismatch(&rule.statement.matcher, &self.at);
            let matches = mismatch.is_none();
            self.steps.push(Step { hook, table, chain, rule, mismatch });
            if !matches {
                continue;
            }
            let flow = self.target(hook, table, rule.statement.target);
            if flow != Flow::Continue {
                return flow;
            }
        }
        Flow::Continue
    }

    fn target(&mut self, hook: Hook, table: Table, target: Target) -> Flow {
        match target {
            Target::Accept => Flow::Accept,
            Target::Drop => Flow::Drop,
            Target::Return => Flow::Return,
            Target::Redirect(port) => Flow::Redirect(port),
            Target::Tproxy { port, mark } => {
                self.at.mark = mark;
                Flow::Tproxy(port)
            }
            Target::Jump(chain) => {
                let rules = self.rules.tables.get(&table).and_then(|table| table.chains.get(&chain));
                let flow = self.rules(hook, table, Some(chain), rules.into_iter().flatten());
                if flow == Flow::Return { Flow::Continue } else { flow }
            }
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

    const fn mark(&mut self, mark: Mark) -> Flow {
        self.at.mark = mark;
        Flow::Continue
    }
}

/// What becomes of a packet that no rule takes.
fn ended(packet: &Packet) -> Verdict {
    match packet.state {
        ConnectionState::Established => Verdict::LikeItsConnection,
        ConnectionState::New | ConnectionState::Invalid => Verdict::NotCaptured,
    }
}

/// The rule that is the reason for the verdict.
fn decisive<'a>(steps: &[Step<'a>], packet: &Packet, verdict: Verdict) -> Option<&'a Rule> {
    let matched = || steps.iter().rev().filter(|step| step.mismatch.is_none());
    let last = |wanted: fn(Target) -> bool| matched().find(|step| wanted(step.rule.statement.target));
    match verdict {
        Verdict::Dropped => last(|target| target == Target::Drop).map(|step| step.rule),
        Verdict::ToProxySocket => {
            last(|target| matches!(target, Target::SetMark(_) | Target::RestoreMark)).map(|step| step.rule)
        }
        Verdict::Captured(_) => {
            let takes = |target| matches!(target, Target::Redirect(_) | Target::Tproxy { .. });
            let taken = last(takes)?;
            // A chain that only redirects: the reason is what jumped to it.
            let jumped = |step: &&Step<'a>| {
                taken.chain.is_some_and(|chain| step.rule.statement.target == Target::Jump(chain))
                    && taken.chain != Some(Chain::OutputDns)
            };
            Some(matched().find(jumped).unwrap_or(taken).rule)
        }
        Verdict::NotCaptured => {
            // Where new connections are captured: of a sender in the pod it is the nat table.
            let hook = if packet.is_inbound { Hook::Prerouting } else { Hook::Output };
            let returned = |step: &&Step<'a>| {
                step.hook == hook
                    && (packet.is_inbound || step.table == Table::Nat)
                    && matches!(step.rule.statement.target, Target::Return | Target::Accept)
            };
            matched().find(returned).map(|step| step.rule)
        }
        Verdict::LikeItsConnection => None,
    }
}
