//! The changes of a run, phase by phase.

use std::collections::BTreeSet;

use super::{CurrentState, DeleteByHandle, DesiredState, ReplaceNative, Restore, Step, live_marks};
use crate::connections::Exemption;
use crate::connections::conntrack;
use crate::connections::transition::{Transition, saved_marks};
use crate::model::{Backend, Family, FamilyRules, Mark, PerFamily, Table, Variant};
use crate::nft::{self, NativeTable};
use crate::ordered::Ordered as _;
use crate::parse::Observed;
use crate::reconcile::{self, Change, TableChange};
use crate::record::{Block, Found, Record};

/// The changes of a run, phase by phase: every family passes one before any family enters the next.
///
/// What captures from now on is live before what captured until now goes. Where two rule sets would harm each
/// other's connections meanwhile, both take their transitional form; a run may stop after any step.
pub(super) struct Phases {
    backend: Backend,
    /// Whether native tables take their transitional form.
    limit_native: bool,
    /// The live rules of the other variants, in their transitional form.
    prepare: Vec<(Variant, Change)>,
    /// The desired rules, in their transitional form.
    capture: Vec<Change>,
    /// The desired native tables, in their transitional form.
    capture_native: Option<ReplaceNative>,
    /// The tables that are written before the rest of `capture`, one after the other, with a wait for the
    /// packets between the tables after each.
    ahead: [PerFamily<Table>; 2],
    /// Our rules of the other variants leave.
    withdraw: Vec<(Variant, Change)>,
    /// Marks that may be where they do not belong.
    unmark: Vec<conntrack::Step>,
    /// Our rules in the shared chains after `prepare` and `capture`, where there is another phase.
    transitional: BTreeSet<Block>,
    /// What of the desired rules has another form from then on.
    finish: Vec<Change>,
    /// The change of native tables that belongs to `finish`.
    finish_native: Option<ReplaceNative>,
    /// What has its final form only once no conntrack entry is stale.
    last: Vec<Change>,
    /// The change of native tables that belongs to `last`.
    last_native: Option<ReplaceNative>,
}

/// The part of one family.
struct Plan<'a> {
    desired: &'a FamilyRules,
    /// Live rules of the chosen variant.
    main: &'a Observed,
    /// Live rules of the variants that are not chosen.
    others: Vec<(Variant, &'a Observed)>,
    transition: Transition,
}

impl Phases {
    pub(super) fn of(
        desired: &DesiredState,
        current: &CurrentState,
        tracked: &conntrack::ObservedState<'_>,
    ) -> Self {
        let none = Family::ALL.map(FamilyRules::none);
        let nothing = Family::ALL.map(Observed::empty);
        let plans: Vec<Plan<'_>> = none
            .iter()
            .zip(&nothing)
            .map(|(none, nothing)| {
                let rules = desired.rules.get(&none.family).unwrap_or(none);
                Plan::new(rules, nothing, current)
            })
            .collect();
        let mut phases = Self {
            backend: current.backend,
            limit_native: false,
            prepare: Vec::new(),
            capture: Vec::new(),
            capture_native: None,
            ahead: [PerFamily::new(), PerFamily::new()],
            withdraw: Vec::new(),
            unmark: Vec::new(),
            transitional: BTreeSet::new(),
            finish: Vec::new(),
            finish_native: None,
            last: Vec::new(),
            last_native: None,
        };
        if current.backend == Backend::Native {
            phases.native(&plans, desired.rewrite, current);
        }
        for plan in &plans {
            phases.family(plan, desired.rewrite, current, tracked);
        }
        phases
    }

    fn native(&mut self, plans: &[Plan<'_>], rewrite: bool, current: &CurrentState) {
        let tables = |form: fn(Transition) -> Transition| {
            let form = |plan: &Plan<'_>| (plan.desired.family, form(plan.transition).form(plan.desired));
            nft::tables(&plans.iter().map(form).collect::<PerFamily<_>>())
        };
        let changed = |from: &[NativeTable], to: &[NativeTable]| {
            let tables: Vec<_> = to.iter().filter(|table| !from.contains(table)).cloned().collect();
            (!tables.is_empty()).then_some(ReplaceNative { tables, delete: Vec::new() })
        };
        let first = tables(|transition| transition);
        if plans.iter().any(|plan| plan.transition.is_needed()) {
            let (capturing, last) = (tables(Transition::capturing), tables(|_| Transition::default()));
            self.finish_native = changed(&first, &capturing);
            self.last_native = changed(&capturing, &last);
        }
        let differing = current.native.differing(&first);
        let delete = current.native.unwanted(first.iter().map(NativeTable::name));
        // A table that is right is not touched: no packet passes a chain of it while it is replaced.
        let written = first.into_iter().filter(|table| rewrite || differing.contains(&table.name()));
        let capture = ReplaceNative { tables: written.collect(), delete };
        self.capture_native =
            Some(capture).filter(|capture| !capture.tables.is_empty() || !capture.delete.is_empty());
    }

    fn family(
        &mut self,
        plan: &Plan<'_>,
        rewrite: bool,
        current: &CurrentState,
        tracked: &conntrack::ObservedState<'_>,
    ) {
        let Plan { desired, main, others, transition } = plan;
        let family = desired.family;
        let native = self.backend != Backend::Native && current.native.marks_packets();
        self.limit_native |= native && transition.limit_save_mark;
        let mut changes_marks = self.capture_native.is_some();
        for (variant, other) in others {
            let prepare = transition.prepare(other);
            let prepared = prepare.project(other);
            let withdraw = Change::between(&FamilyRules::none(family), &prepared, false);
            self.transitional.extend(reconcile::found(*variant, &prepared).blocks);
            changes_marks |= withdraw.writes(Table::Mangle);
            self.prepare.push((*variant, prepare));
            self.withdraw.push((*variant, withdraw));
        }
        if let Some(variant) = self.backend.variant() {
            let capture = Change::between(&transition.form(desired), main, rewrite);
            changes_marks |= capture.writes(Table::Mangle);
            let captured = transition.is_needed().then(|| capture.project(main));
            let there = reconcile::found(variant, captured.as_ref().unwrap_or(main)).blocks;
            self.transitional.extend(there);
            if let Some(captured) = captured {
                let finish = Change::between(&transition.capturing().form(desired), &captured, false);
                self.last.push(Change::between(desired, &finish.project(&captured), false));
                self.finish.push(finish);
            }
            self.capture.push(capture);
        }
        self.order(plan, current, tracked);
        let is_live = main.has_ours() || others.iter().any(|(_, other)| other.has_ours());
        let mut marks: BTreeSet<Mark> = BTreeSet::new();
        // An entry that was marked before a clean-up may be that of a connection that was direct meanwhile.
        let is_resumed = transition.exemption == Exemption::Capture;
        if changes_marks && (is_live || is_resumed || current.native.marks_packets()) {
            marks.extend(saved_marks(desired));
        }
        let of_main = if self.backend == Backend::Native { current.native.marks() } else { live_marks(main) };
        let of_others: BTreeSet<Mark> = others.iter().flat_map(|(_, other)| live_marks(other)).into_set();
        if !of_main.is_empty() && !of_others.is_empty() {
            // Also if no TPROXY rules remain: the next ones would look at these marks again.
            marks.extend(of_main.into_iter().chain(of_others));
        }
        self.unmark.extend(marks.into_iter().map(|mark| conntrack::Step::ClearForeignMark(family, mark)));
    }

    /// What the namespace holds in the end.
    pub(super) fn record(&self, desired: &DesiredState, passthrough: bool) -> Record {
        match self.backend {
            Backend::Iptables(variant) => {
                Record::of(desired.rules.values(), &self.capture, passthrough, variant)
            }
            Backend::Native => Record::without_blocks(passthrough),
        }
    }

    /// What is live for a while only.
    pub(super) fn transitional(&self, found: &Found) -> Option<Record> {
        if self.finish.is_empty() && self.finish_native.is_none() && self.last_native.is_none() {
            return None;
        }
        let blocks = self.transitional.clone();
        let variants = blocks.iter().map(|block| block.variant).into_set();
        Some(Record::of_blocks(variants, blocks, false).with_places_of(found))
    }

    /// Decides what is written before the rest of `capture`. No packet must pass one table before its change
    /// and a later one after its: a query that is tracked without a zone and then redirected, whose response
    /// is looked for in the zone; a SYN that meets mangle before it has TPROXY, and nat after that no longer
    /// redirects, which bypasses the proxy. From TPROXY to REDIRECT nothing can pass: mangle lets go last,
    /// and packets meet it first.
    fn order(&mut self, plan: &Plan<'_>, current: &CurrentState, tracked: &conntrack::ObservedState<'_>) {
        let (desired, family) = (plan.desired, plan.desired.family);
        let (is_live, live_marks) = match self.backend {
            Backend::Native => (!current.native.is_empty(), current.native.marks()),
            Backend::Iptables(_) => (plan.main.has_ours(), live_marks(plan.main)),
        };
        let [first, ..] = reconcile::commit_order(desired);
        let takes_over = is_live && live_marks.is_empty() && first == Table::Mangle;
        let zones = conntrack::commit_raw_first(desired, tracked);
        let ahead = [zones.then_some(Table::Raw), takes_over.then_some(Table::Mangle)];
        for (tables, table) in self.ahead.iter_mut().zip(ahead) {
            tables.extend(table.map(|table| (family, table)));
        }
    }

    /// Takes out what is written ahead, in its parts.
    fn take_ahead(&mut self) -> [(Vec<Change>, Vec<ReplaceNative>); 2] {
        let Self { ahead, capture, capture_native, .. } = self;
        ahead.each_ref().map(|tables| {
            let take = |change: &mut Change| Some(change.take(*tables.get(&change.family)?));
            let changes = capture.iter_mut().filter_map(take).collect();
            // One table for both families.
            let tables = tables.values().copied().into_set();
            let native = capture_native.as_mut();
            let native =
                native.map(|native| tables.into_iter().filter_map(|table| native.take(table)).collect());
            (changes, native.unwrap_or_default())
        })
    }

    /// The steps before the last change of conntrack entries, and those after it.
    pub(super) fn steps(mut self, current: &CurrentState) -> (Vec<Step>, Vec<Step>) {
        let ahead = self.take_ahead();
        let Self {
            backend,
            limit_native,
            prepare,
            capture,
            capture_native,
            ahead: _,
            withdraw,
            unmark,
            transitional: _,
            finish,
            finish_native,
            last,
            last_native,
        } = self;
        let restores = |changes: Vec<(Variant, Change)>| {
            changes.into_iter().flat_map(|(variant, change)| written(variant, &change))
        };
        let main = |changes: Vec<Change>| {
            let of = |change: Change| Some((backend.variant()?, change));
            restores(changes.into_iter().filter_map(of).collect())
        };
        let replaced = |replace: Option<ReplaceNative>| match replace? {
            ReplaceNative { tables, delete } if tables.is_empty() => {
                (!delete.is_empty()).then_some(Step::DeleteNative(delete))
            }
            replace => Some(Step::ReplaceNative(replace)),
        };
        let mut steps = Vec::new();
        steps.extend(limit_native.then_some(Step::LimitNative));
        steps.extend(restores(prepare));
        let prepared = steps.len();
        for (changes, native) in ahead {
            let before = steps.len();
            steps.extend(main(changes));
            steps.extend(native.into_iter().filter_map(|native| replaced(Some(native))));
            steps.extend((steps.len() > before).then_some(Step::AwaitPackets));
        }
        steps.extend(main(capture));
        steps.extend(replaced(capture_native));
        let is_captured = steps.len() > prepared;
        let untracked = &current.connections.untracked;
        steps.extend((!untracked.is_empty()).then(|| Step::TrackConnections(untracked.clone())));
        let replaces_native = backend != Backend::Native && !current.native.is_empty();
        let native = replaces_native.then(|| Step::DeleteNative(current.native.names()));
        let withdraw: Vec<Step> = restores(withdraw).chain(native).collect();
        // A packet before the new rules must not be behind the old ones when those go.
        steps.extend((is_captured && !withdraw.is_empty()).then_some(Step::AwaitPackets));
        steps.extend(withdraw);
        // Before the last commit: a run that is killed here leaves something to change, so the next one comes
        // here too.
        steps.extend(unmark.into_iter().map(Step::Conntrack));
        steps.extend(main(finish));
        steps.extend(replaced(finish_native));
        (steps, main(last).chain(replaced(last_native)).collect())
    }
}

impl<'a> Plan<'a> {
    fn new(desired: &'a FamilyRules, nothing: &'a Observed, current: &'a CurrentState) -> Self {
        let family = desired.family;
        let live = |variant| current.rules.get(&(variant, family)).unwrap_or(nothing);
        let others: Vec<_> =
            current.backend.other_variants().map(|variant| (variant, live(variant))).collect();
        let native = current.backend != Backend::Native && current.native.marks_packets();
        let is_untracked = current.connections.untracked.contains(&family);
        // What captures already does not stop because entries are not correct yet.
        let left = current.exemption(family).min(Exemption::Correction);
        let transition = Transition {
            exemption: if is_untracked { Exemption::Capture } else { left },
            ..Transition::between(desired, others.iter().map(|(_, other)| *other), native)
        };
        Self { desired, main: current.backend.variant().map_or(nothing, live), others, transition }
    }
}

fn written(variant: Variant, change: &Change) -> Vec<Step> {
    let family = change.family;
    let [before, after]: [Vec<TableChange>; 2] = change.tables.iter().map(TableChange::around_deletion).fold(
        [Vec::new(), Vec::new()],
        |[mut before, mut after], [first, last]| {
            before.push(first);
            after.push(last);
            [before, after]
        },
    );
    let restore = |tables: Vec<TableChange>| {
        let tables: Vec<_> = tables.into_iter().filter(TableChange::needs_restore).collect();
        let change = Change { tables, ..Change::empty(family) };
        (!change.is_empty()).then_some(Step::Restore(Restore { variant, change }))
    };
    let by_handle = change.tables.iter().filter(|table| !table.by_handle.is_empty()).map(|table| {
        let (table, by_handle) = (table.table, table.by_handle.clone());
        Step::DeleteByHandle(DeleteByHandle { family, table, by_handle })
    });
    // A run that is killed in between leaves a rule that an identical foreign rule makes redundant, and no
    // part of a set of rules.
    restore(before).into_iter().chain(by_handle).chain(restore(after)).collect()
}
