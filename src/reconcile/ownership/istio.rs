//! Identifies rules of Istio's own binary, or of a version of ours without records.
//!
//! It appended its rules in one transaction, so they are consecutive and adjacent to its jumps, unless
//! foreign rules were inserted in between: then rules that cannot be distinguished stay.

use std::collections::BTreeSet;

use super::{Ours, forms, marks_in_use};
use crate::model::{Hook, Interface, Statement, Table, Target};
use crate::ordered::Ordered as _;
use crate::parse::{Line, ObservedTable};

pub(super) fn leftovers(table: Table, observed: &ObservedTable, ours: &mut Ours) {
    match table {
        Table::Raw => {}
        Table::Mangle => {
            mark_rules(observed, ours);
            excluded_interfaces(observed, ours);
        }
        Table::Nat => {
            excluded_interfaces(observed, ours);
            virtual_interfaces(observed, ours);
        }
    }
}

fn statement(line: Option<&Line>) -> Option<&Statement> {
    line?.statement.as_ref()
}

/// `-i IF -j RETURN` and `-o IF -j RETURN` are a pair, each half right before a rule of Istio's that was
/// appended with it. Without one in the chain (no inbound ports) the end of the chain is the place.
fn excluded_interfaces(observed: &ObservedTable, ours: &mut Ours) {
    let inbound = returns_before_ours(observed.hook(Hook::Prerouting), &ours.of(Hook::Prerouting));
    let outbound = returns_before_ours(observed.hook(Hook::Output), &ours.of(Hook::Output));
    let names = |returns: &[(usize, Interface)]| -> BTreeSet<Interface> {
        returns.iter().map(|(_, name)| name.clone()).into_set()
    };
    let both = &names(&inbound) & &names(&outbound);
    for (hook, returns) in [(Hook::Prerouting, inbound), (Hook::Output, outbound)] {
        let mut seen = BTreeSet::new();
        // From the end: of identical lines the last one was appended with the jump.
        let pairs = returns.into_iter().rev().filter(|(_, name)| both.contains(name));
        ours.claim(
            hook,
            pairs.filter(|(_, name)| seen.insert(name.clone())).map(|(at, _)| at).collect::<Vec<_>>(),
        );
    }
}

/// The consecutive plain RETURNs right before the first rule of ours that was appended, in order.
fn returns_before_ours(lines: &[Line], certain: &BTreeSet<usize>) -> Vec<(usize, Interface)> {
    let in_tail = |at: &&usize| lines.get(**at).is_some_and(super::is_in_tail);
    let end = certain.iter().find(in_tail).copied().unwrap_or(lines.len());
    let plain = |at: usize| {
        let found = statement(lines.get(at)).filter(|statement| forms::is_plain_return(statement))?;
        let matcher = &found.matcher;
        Some((at, matcher.in_interface.clone().or_else(|| matcher.out_interface.clone())?))
    };
    let mut returns: Vec<_> = (0..end).rev().map_while(plain).collect();
    returns.reverse();
    returns
}

/// `-i IF -j RETURN` of a virtual interface is right behind the rules that send the same interfaces to the
/// proxy. Where no range is captured nothing distinguishes it from a foreign rule.
fn virtual_interfaces(observed: &ObservedTable, ours: &mut Ours) {
    let lines = observed.hook(Hook::Prerouting);
    let claimed = ours.of(Hook::Prerouting);
    let rerouted = |at: usize| {
        let found = statement(lines.get(at)).filter(|found| found.target.jump().is_some())?;
        claimed.contains(&at).then(|| found.matcher.in_interface.clone()).flatten()
    };
    let heads: Vec<(usize, Interface)> =
        (0..lines.len()).filter_map(|at| Some((at, rerouted(at)?))).collect();
    let Some((last, _)) = heads.last() else { return };
    let mut open: BTreeSet<_> = heads.iter().map(|(_, name)| name.clone()).into_set();
    let returns = (last + 1..lines.len()).take_while(|at| {
        statement(lines.get(*at))
            .filter(|found| forms::is_plain_return(found))
            .and_then(|found| found.matcher.in_interface.as_ref())
            .is_some_and(|name| open.remove(name))
    });
    let returns: Vec<_> = returns.collect();
    ours.claim(Hook::Prerouting, returns);
}

/// The mark rules of TPROXY mode with the mark that the chains use: in OUTPUT from the RETURN to the restore,
/// in PREROUTING right behind a jump. Of identical ones the last.
fn mark_rules(observed: &ObservedTable, ours: &mut Ours) {
    let marks = marks_in_use(observed);
    let lines = observed.hook(Hook::Output);
    let ours_by_form = |at: usize| {
        statement(lines.get(at)).filter(|found| forms::carries_mark(Hook::Output, found, Some(&marks)))
    };
    let is_return = |found: &Statement| found.target == Target::Return;
    let restore = (0..lines.len())
        .rev()
        .find(|at| ours_by_form(*at).is_some_and(|found| found.target == Target::RestoreMark));
    if let Some(end) = restore {
        let marking =
            |at: &usize| ours_by_form(*at).is_some_and(|found| matches!(found.target, Target::SetMark(_)));
        let begin = end - (0..end).rev().take_while(marking).count();
        let first = begin.checked_sub(1).filter(|at| ours_by_form(*at).is_some_and(is_return));
        ours.claim(Hook::Output, first.unwrap_or(begin)..=end);
    }
    let lines = observed.hook(Hook::Prerouting);
    let saves = |at: &usize| {
        statement(lines.get(*at))
            .is_some_and(|found| forms::carries_mark(Hook::Prerouting, found, Some(&marks)))
    };
    let jumps = ours.of(Hook::Prerouting);
    let behind_a_jump =
        |at: &usize| jumps.is_empty() || at.checked_sub(1).is_some_and(|before| jumps.contains(&before));
    let save = (0..lines.len()).rev().filter(saves).find(behind_a_jump);
    ours.claim(Hook::Prerouting, save);
}
