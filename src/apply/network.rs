//! Addresses, policy rules and routes: [`crate::routing`]'s view of them, and its steps, in terms of the kernel's calls.

use std::io;

use crate::kernel::rtnetlink::{self, Rtnetlink};
use crate::model::{Family, PASSTHROUGH_V6, ROUTE_PROTOCOL};
use crate::nft::Live;
use crate::routing::{MarkRule, Native, Observed, Route, Step};

/// The passthrough address, policy rules by mark, and routes in other than the standard tables.
///
/// # Errors
/// The kernel refuses.
pub fn observed() -> io::Result<Observed> {
    let mut socket = Rtnetlink::open()?;
    let mut observed = Observed {
        passthrough: socket.passthrough_address()?.map(|address| address.protocol.unwrap_or(0)),
        ..Observed::default()
    };
    for family in Family::ALL {
        let rules = socket.mark_rules(family)?.into_iter().filter(|rule| rule.plain && rule.mask == u32::MAX);
        observed.rules.extend(rules.map(|rule| MarkRule {
            family,
            mark: rule.mark,
            table: rule.table,
            priority: rule.priority,
            protocol: rule.protocol.unwrap_or(0),
        }));
        let routes = socket.routes_of_other_tables(family)?.into_iter();
        observed.routes.extend(routes.map(|route| Route {
            family,
            table: route.table,
            protocol: route.protocol,
            local_default: route.is_local_default(),
        }));
    }
    Ok(observed)
}

/// What the tables of a native backend refer to.
pub(super) fn native(tables: &Live) -> Native {
    Native { marks: tables.marks(), passthrough: tables.refers_to(PASSTHROUGH_V6) }
}

/// Makes one change. One that is made already is no error.
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
