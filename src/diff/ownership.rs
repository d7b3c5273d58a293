//! Which rules in the shared chains are ours.
//!
//! Most of them jump to a chain of ours. The others carry no marker (comments are not available everywhere), so they
//! are recognised by their exact shape, only while the same table has chains of ours, and only with whatever
//! further evidence there is. Of identical lines one is ours.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::model::{
    Chain, Hook, HookRules, Interface, Mark, Match, Matcher, Protocol, Rule, Statement, Table, Target,
};
use crate::parse::{Line, ObservedTable};
use crate::policy::PROXY_LOOPBACK_MARK;

use super::statements;

/// The places of our rules in each shared chain.
#[derive(Debug, Default)]
pub(super) struct Ours(BTreeMap<Hook, BTreeSet<usize>>);

impl Ours {
    pub(super) fn of(&self, hook: Hook) -> BTreeSet<usize> {
        self.0.get(&hook).cloned().unwrap_or_default()
    }

    fn claim(&mut self, hook: Hook, at: usize) {
        self.0.entry(hook).or_default().insert(at);
    }

    fn has(&self, hook: Hook, at: usize) -> bool {
        self.0.get(&hook).is_some_and(|places| places.contains(&at))
    }
}

/// Finds our rules in the shared chains of a table.
pub(super) fn ours(table: Table, observed: &ObservedTable) -> Ours {
    let mut ours = Ours::default();
    for hook in Hook::ALL {
        for (at, _) in observed.hook(hook).iter().enumerate().filter(|(_, line)| line.jump.is_some()) {
            ours.claim(hook, at);
        }
    }
    if observed.chains.is_empty() {
        return ours;
    }
    match table {
        Table::Raw => {}
        Table::Mangle => {
            excluded_interfaces(observed, &mut ours);
            marks(observed, &mut ours);
        }
        Table::Nat => {
            excluded_interfaces(observed, &mut ours);
            virtual_interfaces(observed, &mut ours);
        }
    }
    ours
}

/// Our rules in one shared chain of a table, in their order.
pub(crate) fn our_rules(table: Table, observed: &ObservedTable, hook: Hook) -> Vec<&Line> {
    let ours = ours(table, observed).of(hook);
    observed.hook(hook).iter().enumerate().filter(|(at, _)| ours.contains(at)).map(|(_, line)| line).collect()
}

/// `-i IF -j RETURN` and `-o IF -j RETURN` are written as a pair. Both were appended to the existing rules, so of
/// identical lines the last one is ours.
fn excluded_interfaces(observed: &ObservedTable, ours: &mut Ours) {
    let inbound = last_returns(observed.hook(Hook::Prerouting), |matcher| matcher.in_interface.as_ref());
    let outbound = last_returns(observed.hook(Hook::Output), |matcher| matcher.out_interface.as_ref());
    for (interface, at) in &inbound {
        if let Some(out_at) = outbound.get(interface) {
            ours.claim(Hook::Prerouting, *at);
            ours.claim(Hook::Output, *out_at);
        }
    }
}

/// Where each interface is returned from last, by a rule that looks at nothing but the interface.
fn last_returns(
    lines: &[Line],
    interface: impl Fn(&Matcher) -> Option<&Interface>,
) -> BTreeMap<Interface, usize> {
    let plain = |statement: &Statement| {
        let name = interface(&statement.matcher)?;
        is_plain_return(statement).then(|| name.clone())
    };
    statements(lines).filter_map(|(at, statement)| Some((plain(statement)?, at))).collect()
}

/// A RETURN that looks at one interface and at nothing else.
pub(super) fn is_plain_return(statement: &Statement) -> bool {
    let Matcher { in_interface, out_interface, .. } = &statement.matcher;
    let only_interfaces = Matcher {
        in_interface: in_interface.clone(),
        out_interface: out_interface.clone(),
        ..Matcher::default()
    };
    let one = in_interface.is_some() != out_interface.is_some();
    one && statement.target == Target::Return && statement.matcher == only_interfaces
}

/// `-i IF -j RETURN` of a virtual interface was put before everything else. If outbound ranges are captured, rules
/// that send the same interface to the proxy precede it; without such rules it is at the head of the chain.
fn virtual_interfaces(observed: &ObservedTable, ours: &mut Ours) {
    let lines = observed.hook(Hook::Prerouting);
    let returns = |at: usize| {
        let statement = lines.get(at)?.statement.as_ref()?;
        is_plain_return(statement).then_some(statement.matcher.in_interface.as_ref()).flatten()
    };
    let rerouted: BTreeSet<&Interface> = statements(lines)
        .filter(|(_, statement)| statement.target == Target::Jump(Chain::Redirect))
        .filter_map(|(_, statement)| statement.matcher.in_interface.as_ref())
        .collect();
    let mut seen = BTreeSet::new();
    for at in 0..lines.len() {
        let Some(interface) = returns(at) else { continue };
        if rerouted.contains(interface) && !ours.has(Hook::Prerouting, at) && seen.insert(interface) {
            ours.claim(Hook::Prerouting, at);
        }
    }
    if captures_ranges(observed) {
        return;
    }
    for at in (0..lines.len()).take_while(|at| returns(*at).is_some()) {
        if !ours.has(Hook::Prerouting, at) && returns(at).is_some_and(|interface| seen.insert(interface)) {
            ours.claim(Hook::Prerouting, at);
        }
    }
}

/// Whether one of our rules was appended to the existing rules of the chain: everything but what virtual interfaces need, and
/// plain RETURNs, which may be either.
pub(super) fn is_in_tail(line: &Line) -> bool {
    let for_guest = |statement: &Statement| {
        statement.matcher.in_interface.is_some() && statement.target == Target::Jump(Chain::Redirect)
    };
    line.statement.as_ref().is_none_or(|statement| !for_guest(statement) && !is_plain_return(statement))
}

/// What [`ours`] cannot distinguish from a foreign rule, but the options ask for: a lone RETURN of a virtual
/// interface that is no longer at the head. Enough to see that nothing is missing, not enough to delete anything.
pub(super) fn possibly_ours(
    wanted: &HookRules,
    lines: &[Line],
    certain: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let mut places: HashMap<&Statement, Vec<usize>> = HashMap::new();
    for (at, statement) in statements(lines) {
        places.entry(statement).or_default().push(at);
    }
    let place = |rule: &Rule| {
        let places = places.get(&rule.statement)?;
        let known = places.iter().any(|at| certain.contains(at));
        if known { None } else { places.first().copied() }
    };
    let returns = wanted.head.iter().filter(|rule| is_plain_return(&rule.statement));
    certain.iter().copied().chain(returns.filter_map(place)).collect()
}

/// Whether outbound ranges are captured (`-i`): a jump to the redirect that looks at no port.
fn captures_ranges(observed: &ObservedTable) -> bool {
    let lines = observed.chains.get(&Chain::Output).map_or(&[][..], Vec::as_slice);
    statements(lines).any(|(_, statement)| {
        statement.target == Target::Jump(Chain::Redirect) && statement.matcher.protocol.is_none()
    })
}

/// The mark rules of TPROXY mode, with the mark that our own chains use. They were appended to existing rules, so of
/// identical lines the last one is ours.
fn marks(observed: &ObservedTable, ours: &mut Ours) {
    let marks = marks_in_use(observed);
    for hook in Hook::ALL {
        let mut seen = HashSet::new();
        let lines = observed.hook(hook);
        for (at, line) in lines.iter().enumerate().rev() {
            let Some(statement) = &line.statement else {
                continue;
            };
            if carries_mark(hook, statement, &marks) && seen.insert(statement) {
                ours.claim(hook, at);
            }
        }
    }
}

fn carries_mark(hook: Hook, statement: &Statement, marks: &BTreeSet<Mark>) -> bool {
    let Statement { matcher, target } = statement;
    let tcp = || Matcher { protocol: Some(Protocol::TCP), ..Matcher::default() };
    let over_loopback = || Matcher { out_interface: Some(Interface::loopback()), ..tcp() };
    let known = |expected: &dyn Fn(Mark) -> Matcher| marks.iter().any(|mark| *matcher == expected(*mark));
    match (hook, target) {
        (Hook::Prerouting, Target::SaveMark) => {
            // With `-i lo` while a run moves from one backend to another.
            let from_loopback = || Matcher { in_interface: Some(Interface::loopback()), ..tcp() };
            known(&|mark| Matcher { mark: Some(Match::Is(mark)), ..tcp() })
                || known(&|mark| Matcher { mark: Some(Match::Is(mark)), ..from_loopback() })
        }
        (Hook::Output, Target::Return) => {
            known(&|mark| Matcher { mark: Some(Match::Is(mark)), ..over_loopback() })
        }
        (Hook::Output, Target::RestoreMark) => known(&|mark| Matcher { connmark: Some(mark), ..tcp() }),
        (Hook::Output, Target::SetMark(PROXY_LOOPBACK_MARK)) => {
            let Matcher { destination, owners, .. } = matcher;
            let expected = Matcher { destination: *destination, owners: owners.clone(), ..over_loopback() };
            matches!(destination, Some(Match::Not(_))) && owners.len() == 1 && *matcher == expected
        }
        _ => false,
    }
}

/// The marks that our chains in mangle look for or set.
pub(crate) fn marks_in_use(observed: &ObservedTable) -> BTreeSet<Mark> {
    let of = |statement: &Statement| match (statement.matcher.mark, statement.target) {
        (_, Target::Tproxy { mark, .. } | Target::SetMark(mark))
        | (Some(Match::Is(mark)), Target::Return) => Some(mark),
        _ => None,
    };
    observed
        .chains
        .values()
        .flat_map(|lines| statements(lines))
        .filter_map(|(_, statement)| of(statement))
        .collect()
}
