//! The forms of our rules in the shared chains: the one list of them.

use std::collections::BTreeSet;

use crate::model::{
    Chain, CtState, Hook, Interface, Mark, Match, Matcher, PROXY_LOOPBACK_MARK, Protocol, Statement, Table,
    Target,
};
use crate::parse::Line;

/// Whether a rule that jumps to a chain of ours is one that we, or a version of Istio, write. Any other one
/// is foreign, and holds the chain that it jumps to.
pub(crate) fn is_our_jump(table: Table, hook: Hook, line: &Line) -> bool {
    let Some(Statement { matcher, target: Target::Jump(chain) }) = &line.statement else { return false };
    let every = *matcher == Matcher::default();
    let tcp = *matcher == of_tcp();
    match (table, hook, chain) {
        (Table::Raw, Hook::Prerouting, Chain::Inbound) | (Table::Raw, Hook::Output, Chain::OutputDns) => {
            every
        }
        (Table::Mangle | Table::Nat, Hook::Prerouting, Chain::Inbound) => tcp,
        (Table::Mangle, Hook::Prerouting, Chain::Drop) => {
            *matcher == Matcher { ct_state: Some(CtState::Invalid), ..Matcher::default() }
        }
        // Up to 1.14 Istio looked at TCP only.
        (Table::Nat, Hook::Output, Chain::Output) => every || tcp,
        (Table::Nat, Hook::Prerouting, Chain::Redirect) => is_rerouted(matcher),
        _ => false,
    }
}

/// `-i IF` or `-i IF -d RANGE`: what comes from a virtual interface.
fn is_rerouted(matcher: &Matcher) -> bool {
    let Matcher { in_interface, destination, .. } = matcher;
    let expected =
        Matcher { in_interface: in_interface.clone(), destination: *destination, ..Matcher::default() };
    in_interface.is_some() && !matches!(destination, Some(Match::Not(_))) && *matcher == expected
}

/// Whether a rule that jumps to no chain of ours has a form that we write in this chain. That alone proves
/// nothing.
pub(super) fn may_be_ours(table: Table, hook: Hook, statement: &Statement) -> bool {
    let plain = is_plain_return(statement);
    let by = |hook| match hook {
        Hook::Prerouting => statement.matcher.in_interface.is_some(),
        Hook::Output => statement.matcher.out_interface.is_some(),
    };
    match table {
        Table::Raw => false,
        Table::Nat => plain && by(hook),
        Table::Mangle => (plain && by(hook)) || carries_mark(hook, statement, None),
    }
}

/// A RETURN that matches only an interface.
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

/// The mark rules of TPROXY mode; given `marks`, with one of these.
pub(super) fn carries_mark(hook: Hook, statement: &Statement, marks: Option<&BTreeSet<Mark>>) -> bool {
    let Statement { matcher, target } = statement;
    let known = |mark: &Mark| marks.is_none_or(|marks| marks.contains(mark));
    let over_loopback = || Matcher { out_interface: Some(Interface::loopback()), ..of_tcp() };
    match (hook, target) {
        (Hook::Prerouting, Target::SaveMark) => {
            // With `-i lo` while a run moves from one backend to another.
            let from_loopback = || Matcher { in_interface: Some(Interface::loopback()), ..of_tcp() };
            matches!(matcher.mark, Some(Match::Is(mark)) if known(&mark))
                && [of_tcp(), from_loopback()]
                    .into_iter()
                    .any(|expected| *matcher == Matcher { mark: matcher.mark, ..expected })
        }
        (Hook::Output, Target::Return) => {
            matches!(matcher.mark, Some(Match::Is(mark)) if known(&mark))
                && *matcher == Matcher { mark: matcher.mark, ..over_loopback() }
        }
        (Hook::Output, Target::RestoreMark) => {
            matcher.connmark.is_some_and(|mark| known(&mark))
                && *matcher == Matcher { connmark: matcher.connmark, ..of_tcp() }
        }
        (Hook::Output, Target::SetMark(PROXY_LOOPBACK_MARK)) => {
            let Matcher { destination, owners, .. } = matcher;
            let expected = Matcher { destination: *destination, owners: owners.clone(), ..over_loopback() };
            matches!(destination, Some(Match::Not(_)))
                && matches!(owners.as_slice(), [Match::Is(_)])
                && *matcher == expected
        }
        _ => false,
    }
}

fn of_tcp() -> Matcher {
    Matcher { protocol: Some(Protocol::TCP), ..Matcher::default() }
}
