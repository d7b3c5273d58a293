//! Addresses, policy rules and routes: [`crate::routing`]'s view of them, and its steps, in terms of the
//! kernel's calls.

use std::io;

use crate::kernel::rtnetlink::{self, Rtnetlink};
use crate::model::{
    DEFAULT_TABLE, Family, LOCAL_TABLE, MAIN_TABLE, PASSTHROUGH_V6, PolicyAction, PolicyRule, ROUTE_PROTOCOL,
};
use crate::nft::LiveTables;
use crate::routing::{MarkRule, Native, Observed, Route, Step};

/// Unspecified, and those that the kernel fills itself.
const STANDARD_TABLES: [u32; 4] = [0, DEFAULT_TABLE, MAIN_TABLE, LOCAL_TABLE];

/// The passthrough address, policy rules by mark, and routes in other than the standard tables.
///
/// # Errors
/// The kernel refuses.
pub fn observed() -> io::Result<Observed> {
    let mut socket = Rtnetlink::open()?;
    let mut observed = Observed {
        passthrough: socket.passthrough_address()?.map(|address| address.protocol.unwrap_or(0)),
        links: socket.links()?,
        ..Observed::default()
    };
    for family in Family::ALL {
        let fib = socket.fib(family)?;
        observed.rules.extend(fib.rules.iter().filter_map(|rule| mark_rule(family, rule)));
        let others = fib.routes.iter().filter(|route| !STANDARD_TABLES.contains(&route.table));
        observed.routes.extend(others.map(|route| Route {
            family,
            table: route.table,
            protocol: route.origin,
            local_default: route.is_local_default(),
        }));
        observed.fib.insert(family, fib);
    }
    Ok(observed)
}

/// A policy rule that matches only the mark.
fn mark_rule(family: Family, rule: &PolicyRule) -> Option<MarkRule> {
    let (Some((mark, _)), PolicyAction::Table(table)) = (rule.mark, rule.action) else { return None };
    let plain = PolicyRule {
        mark: Some((mark, u32::MAX)),
        origin: rule.origin,
        ..PolicyRule::lookup(rule.priority, table)
    };
    (*rule == plain).then_some(MarkRule {
        family,
        mark,
        table,
        priority: rule.priority,
        protocol: rule.origin,
    })
}

/// What the tables of a native backend refer to.
pub(super) fn native(tables: &LiveTables) -> Native {
    Native { marks: tables.marks(), passthrough: tables.refers_to(PASSTHROUGH_V6) }
}

/// Makes one change. One that is made already is not an error.
///
/// # Errors
/// The kernel refuses.
pub(super) fn execute(step: Step) -> io::Result<()> {
    let mut socket = Rtnetlink::open()?;
    match step {
        Step::AddAddress => socket.add_passthrough_address().map(drop),
        Step::AdoptAddress => socket.claim_passthrough_address(),
        Step::AddRoute(family, table) => socket.add_local_default(family, table).map(drop),
        Step::AdoptRoute(family, table) => socket.claim_local_default(family, table),
        Step::AddRule(family, tproxy) => socket.add_mark_rule(family, tproxy.mark.0, tproxy.table).map(drop),
        Step::RemoveAddress => socket.delete_passthrough_address().map(drop),
        Step::RemoveRoute(family, table) => {
            socket.delete_local_default(family, table, ROUTE_PROTOCOL).map(drop)
        }
        Step::RemoveRule(MarkRule { family, mark, table, priority, protocol }) => {
            let protocol = (protocol != 0).then_some(protocol);
            let live = rtnetlink::MarkRule { priority, mark, mask: u32::MAX, table, protocol, plain: true };
            socket.delete_mark_rule(family, &live).map(drop)
        }
    }
}
