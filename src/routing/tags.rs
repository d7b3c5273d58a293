//! Steps that only tag what Istio's own binary has left as ours, without an effect on packets.

use super::{Step, tproxy_of};
use crate::model::ROUTE_PROTOCOL;

/// Whether a step, among all of a run, replaces an address, a rule or a route by the same one with a tag.
#[must_use]
pub fn is_tagging(step: &Step, all: &[&Step]) -> bool {
    let has = |other: &Step| all.contains(&other);
    let removes = |wanted, is_tagged| {
        all.iter().any(|step| {
            matches!(step, Step::RemoveRule(rule)
                if tproxy_of(rule) == wanted && (rule.protocol == ROUTE_PROTOCOL) == is_tagged)
        })
    };
    let replaces = |wanted| removes(wanted, false) && !removes(wanted, true);
    match step {
        Step::AdoptAddress => !has(&Step::RemoveAddress),
        Step::AdoptRoute(family, table) => !has(&Step::RemoveRoute(*family, *table)),
        Step::AddRule(family, tproxy) => replaces((*family, *tproxy)),
        Step::RemoveRule(rule) => {
            let (family, tproxy) = tproxy_of(rule);
            has(&Step::AddRule(family, tproxy)) && replaces((family, tproxy))
        }
        Step::AddAddress | Step::AddRoute(..) | Step::RemoveAddress | Step::RemoveRoute(..) => false,
    }
}
