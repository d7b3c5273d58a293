//! Carries out one step of [`crate::routing`].

use std::io;

use super::rtnetlink::{self, Rtnetlink};
use crate::routing::Step;

/// Makes the change. One that is made already is no error.
///
/// # Errors
/// The kernel refuses.
pub fn execute(step: Step) -> io::Result<()> {
    let mut socket = Rtnetlink::open()?;
    match step {
        Step::AddAddress => socket.add_passthrough_address().map(drop),
        Step::AdoptAddress => socket.claim_passthrough_address(),
        Step::AddRoute(family, table) => socket.add_local_default(family, table).map(drop),
        Step::AdoptRoute(family, table) => socket.claim_local_default(family, table),
        Step::AddRule(family, tproxy) => socket.add_mark_rule(family, tproxy.mark.0, tproxy.table).map(drop),
        Step::RemoveAddress => socket.delete_passthrough_address().map(drop),
        Step::RemoveRoute(family, table) => {
            socket.delete_local_default(family, table, crate::routing::PROTOCOL).map(drop)
        }
        Step::RemoveRule(rule) => {
            let protocol = (rule.protocol != 0).then_some(rule.protocol);
            let rule_there = rtnetlink::MarkRule {
                priority: rule.priority,
                mark: rule.mark,
                mask: u32::MAX,
                table: rule.table,
                protocol,
                plain: true,
            };
            socket.delete_mark_rule(rule.family, &rule_there).map(drop)
        }
    }
}
