//! The record of a run, before, during and after its steps.

use std::collections::BTreeSet;

use super::{CurrentState, DesiredState, Step, changes};
use crate::connections;
use crate::model::{Backend, Variant};
use crate::ordered::Ordered as _;
use crate::reconcile;
use crate::record::{Block, Found, Record};

/// The steps with the record around them: while one set of rules takes over from another, it says what either
/// wrote, so that a run that is killed half way leaves nothing that the next one would not recognise.
pub(super) fn recorded(
    mut steps: Vec<Step>,
    current: &CurrentState,
    (wanted, left, earlier_ports): (Option<Record>, BTreeSet<Block>, BTreeSet<u16>),
    found: &Found,
    transitional: Option<&Record>,
) -> Vec<Step> {
    let live = current.record();
    // An alias that another program set is not touched. A sandbox takes none.
    if current.is_sandbox || (current.alias.is_some() && live.is_none()) {
        return steps;
    }
    let Some(wanted) = wanted else {
        return recorded_removal(steps, current, live.as_ref(), left, found);
    };
    let mut wanted = wanted.leaving(left).after(earlier_ports);
    if let Some(live) = live.as_ref().filter(|_| steps.is_empty()) {
        wanted = wanted.with_gap_of(live);
    }
    let settled = match &live {
        // Rules of Istio's binary that are right already stay Istio's.
        None => steps.is_empty(),
        Some(live) => steps.is_empty() && live.covers(&wanted),
    };
    if settled {
        return steps;
    }
    let wanted = wanted.with_places_of(found);
    let last = wanted.alias();
    let changing = wanted.taking_over(&live.unwrap_or_default(), found, transitional);
    let is_first = steps.is_empty() || !changing.names_more_than(&wanted);
    let first = if is_first { last.clone() } else { changing.alias() };
    let is_last = first == last;
    let is_new = current.alias.as_ref() != Some(&first);
    steps.splice(0..0, is_new.then_some(Step::Record(first))).for_each(drop);
    steps.extend((!is_last).then_some(Step::Record(last)));
    steps
}

/// The steps of a clean-up: until it completes, the record has what it removes.
fn recorded_removal(
    mut steps: Vec<Step>,
    current: &CurrentState,
    live: Option<&Record>,
    left: BTreeSet<Block>,
    found: &Found,
) -> Vec<Step> {
    let record = live.cloned().unwrap_or_default().removing(found);
    let removes = !steps.is_empty() && live.is_some() && record.tells_of_rules();
    let first = removes.then(|| record.alias()).filter(|alias| Some(alias) != current.alias.as_ref());
    let last = if left.is_empty() { String::new() } else { Record::default().leaving(left).alias() };
    let is_new = current.alias.as_ref() != Some(&last) || first.is_some();
    steps.splice(0..0, first.map(Step::Record)).for_each(drop);
    steps.extend(live.filter(|_| is_new).map(|_| Step::Record(last)));
    steps
}

/// Our rules in the shared chains, of the variants named in the record and of the chosen one.
pub(super) fn found(current: &CurrentState) -> Found {
    let (mut all, live) = (Found::default(), current.record());
    for ((variant, _), observed) in &current.rules {
        if current.backend == Backend::Iptables(*variant)
            || live.as_ref().is_some_and(|live| live.names(*variant))
        {
            let Found { blocks, numbering, is_ambiguous } = reconcile::found(*variant, observed);
            all.is_ambiguous |= is_ambiguous;
            all.blocks.extend(blocks);
            all.numbering.extend(numbering.into_iter().filter(|_| *variant == Variant::Nft));
        }
    }
    all
}

/// What stays because it may be foreign: one block for each statement.
pub(super) fn left(desired: &DesiredState, current: &CurrentState) -> BTreeSet<Block> {
    let mut left = BTreeSet::new();
    if !current.rules.values().any(reconcile::is_ambiguous) {
        return left;
    }
    for variant in Variant::ALL {
        for change in changes(desired, current, variant) {
            left.extend(change.ambiguous.iter().map(|rule| rule.block(variant, change.family)));
        }
    }
    left
}

/// The ports that live rules redirect to, or earlier ones did, and the desired ones do not.
pub(super) fn earlier_ports(desired: &DesiredState, current: &CurrentState) -> BTreeSet<u16> {
    let of_rules = current.rules.values().flat_map(connections::redirect_ports);
    let recorded = current.record().map(|record| record.earlier_ports).unwrap_or_default();
    let desired = connections::desired_ports(desired.rules.values());
    let earlier = of_rules.chain(current.native.redirect_ports()).chain(recorded);
    earlier.filter(|port| !desired.contains(port)).into_set()
}
