//! Plans the steps from the current state to the desired state.
//!
//! A dry run prints these very steps; a real run executes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::backend::Variant;
use crate::connections::{self, Connections};
use crate::conntrack;
use crate::diff::{Change, marks_in_use};
use crate::model::{Chain, Family, FamilyRules, Mark, Table};
use crate::parse::Observed;
use crate::render;
use crate::routing;
use crate::transition::{Transition, saved_marks};

/// The current state of the namespace.
#[derive(Clone, Debug)]
pub struct CurrentState {
    /// The variant that is going to hold our rules.
    pub variant: Variant,
    /// The live rules of each variant and family that has chains of ours.
    pub rules: BTreeMap<(Variant, Family), Observed>,
    /// Tables of the family `inet` that a native nftables backend made.
    pub native_tables: Vec<String>,
    /// Address, policy rules and routes.
    pub network: routing::Observed,
    /// Connections that are tracked.
    pub entries: conntrack::Entries,
    /// Open TCP connections, as far as the desired state concerns them.
    pub connections: Connections,
}

impl CurrentState {
    /// Whether a native backend left rules that may mark packets.
    fn has_native_marks(&self) -> bool {
        self.native_tables.iter().any(|table| table == NATIVE_MANGLE)
    }
}

/// The names that Istio's native nftables backend gives its tables, all of them in the family `inet`.
pub const NATIVE_TABLES: [&str; 3] = ["istio-proxy-nat", NATIVE_MANGLE, "istio-proxy-raw"];

/// The one of them that holds the mark rules of TPROXY mode.
pub const NATIVE_MANGLE: &str = "istio-proxy-mangle";

/// The desired state.
#[derive(Clone, Debug)]
pub struct DesiredState {
    /// The rules of each family; empty ones for a family that gets none.
    pub rules: BTreeMap<Family, FamilyRules>,
    /// Address, policy rules and routes.
    pub network: routing::Desired,
    /// Rewrite rules that are already correct (`--force-apply`).
    pub rewrite: bool,
}

impl DesiredState {
    /// No rules, routes or addresses: the desired state of a cleanup.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            rules: Family::ALL.into_iter().map(|family| (family, FamilyRules::none(family))).collect(),
            network: routing::Desired::default(),
            rewrite: false,
        }
    }

    /// The same desired state, with the rule that keeps translation up in each family that loses its rules while connections
    /// need it, and with the passthrough address while sockets use it.
    #[must_use]
    pub fn keeping_translation(mut self, connections: &Connections) -> Self {
        for (family, rules) in &mut self.rules {
            let translated = connections.translated.get(family).is_some_and(|translated| translated.any());
            if translated && rules.tables.is_empty() {
                *rules = connections::keep_translation(*family);
            }
        }
        self.network.passthrough |= connections.from_passthrough > 0;
        self
    }

    /// The same desired state, accepting the live rule that keeps translation in each family that has it and gets no rules.
    #[must_use]
    pub fn accepting_kept_translation(mut self, current: &CurrentState) -> Self {
        for (family, rules) in self.rules.iter_mut().filter(|(_, rules)| rules.tables.is_empty()) {
            let live = current.rules.get(&(current.variant, *family));
            if live.is_some_and(connections::keeps_translation) {
                *rules = connections::keep_translation(*family);
            }
        }
        self
    }

    /// How many rules of each family.
    #[must_use]
    pub fn counts(&self) -> String {
        let counts = self
            .rules
            .values()
            .filter(|rules| rules.count() > 0 && !connections::only_keeps_translation(rules));
        let counts: Vec<_> =
            counts.map(|rules| format!("{} {} rules", rules.count(), rules.family)).collect();
        if counts.is_empty() { "no rules".to_owned() } else { counts.join(", ") }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Limits the rules of native nftables that store packet marks in connections to packets from `lo`.
    LimitNative,
    /// Deletes tables of native nftables, in one transaction.
    DeleteNative(Vec<String>),
    /// An address, a policy rule or a route.
    Network(routing::Step),
    /// One restore process.
    Restore(Restore),
    /// Makes conntrack entries for the open TCP connections of these families, between the transitional form of the
    /// rules and the final one.
    TrackConnections(BTreeSet<Family>),
    /// A change of the connection tracking table, after the last commit of rules.
    Conntrack(conntrack::Step),
}

/// A rules file and who reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// Whose tool.
    pub variant: Variant,
    /// Which family's tool.
    pub family: Family,
    /// The contents of the rules file.
    pub text: String,
    /// The tables it writes to, in this order.
    pub tables: Vec<Table>,
    /// Rules that it deletes from shared chains, recognised as ours by their shape only.
    pub matched_by_shape: Vec<String>,
}

impl Restore {
    fn new(variant: Variant, change: &Change) -> Self {
        Self {
            variant,
            family: change.family,
            text: render::restore(change),
            tables: change.tables.iter().map(|table| table.table).collect(),
            matched_by_shape: change
                .tables
                .iter()
                .flat_map(|table| table.matched_by_shape.iter().cloned())
                .collect(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitNative => {
                write!(
                    f,
                    "limit the rules of the nftables table inet {NATIVE_MANGLE} that save marks to packets from lo"
                )
            }
            Self::DeleteNative(tables) => {
                write!(f, "delete the nftables tables inet {}", tables.join(", inet "))
            }
            Self::Network(step) => step.fmt(f),
            Self::Conntrack(step) => step.fmt(f),
            Self::TrackConnections(families) => {
                let families: Vec<_> = families.iter().map(Family::to_string).collect();
                write!(f, "create conntrack entries: open {} TCP connections", families.join(" and "))
            }
            Self::Restore(Restore { variant, family, text: _, tables, matched_by_shape: _ }) => {
                let tool = match family {
                    Family::V4 => "iptables",
                    Family::V6 => "ip6tables",
                };
                let tables: Vec<_> = tables.iter().map(|table| table.name()).collect();
                write!(f, "{tool}-{}-restore --noflush (tables {})", variant.word(), tables.join(", "))
            }
        }
    }
}

/// The steps from the current state to the desired state; none if they are equal.
#[must_use]
pub fn plan(desired: &DesiredState, current: &CurrentState) -> Vec<Step> {
    let network = routing::plan(&desired.network, &current.network, &marks(&current.rules));
    let mut steps: Vec<Step> = network.before.into_iter().map(Step::Network).collect();
    steps.extend(Phases::of(desired, current).steps(current));
    steps.extend(network.after.into_iter().map(Step::Network));
    let stale = conntrack::plan(desired, current, captures_changed(&steps));
    if !stale.is_empty() {
        steps.insert(0, Step::Conntrack(conntrack::Step::Note(stale.clone())));
        steps.push(Step::Conntrack(conntrack::Step::DeleteStale(stale)));
    }
    steps
}

/// The families whose TCP capture the steps change, or may change.
fn captures_changed(steps: &[Step]) -> BTreeSet<Family> {
    let families = steps.iter().flat_map(|step| match step {
        Step::Restore(restore) if restore.tables.iter().any(|table| *table != Table::Raw) => {
            vec![restore.family]
        }
        Step::DeleteNative(_) => Family::ALL.to_vec(),
        Step::Restore(_)
        | Step::LimitNative
        | Step::Network(_)
        | Step::Conntrack(_)
        | Step::TrackConnections(_) => Vec::new(),
    });
    families.collect()
}

/// The changes of a run, phase by phase: every family passes one before any family enters the next.
///
/// What captures from now on is live before what captured until now goes. Where two rule sets would harm each other's
/// connections meanwhile, both take their transitional form; a run may stop after any step.
#[derive(Default)]
struct Phases {
    /// Whether native tables take their transitional form.
    limit_native: bool,
    /// The live rules of the other variant, in their transitional form.
    prepare: Vec<Change>,
    /// The desired rules, in their transitional form.
    capture: Vec<Change>,
    /// Our rules of the other variant leave.
    withdraw: Vec<Change>,
    /// Marks that may be where they do not belong.
    unmark: Vec<conntrack::Step>,
    /// What of the desired rules has another form in the end.
    settle: Vec<Change>,
}

impl Phases {
    fn of(desired: &DesiredState, current: &CurrentState) -> Self {
        let mut phases = Self::default();
        for family in Family::ALL {
            let none = FamilyRules::none(family);
            let rules = desired.rules.get(&family).unwrap_or(&none);
            phases.family(rules, desired.rewrite, current);
        }
        phases
    }

    fn family(&mut self, desired: &FamilyRules, rewrite: bool, current: &CurrentState) {
        let family = desired.family;
        let (none, nothing) = (FamilyRules::none(family), Observed::nothing(family));
        let live = |variant| current.rules.get(&(variant, family)).unwrap_or(&nothing);
        let (main, other) = (live(current.variant), live(current.variant.other()));
        let native = current.has_native_marks();
        let transition = Transition {
            exempt_connections: current.connections.untracked.contains(&family),
            ..Transition::between(desired, other, native)
        };
        self.limit_native |= native && transition.limit_save_mark;
        let prepare = transition.prepare(other);
        let mut capture = Change::between(&transition.form(desired), main, rewrite);
        if conntrack::zones_first(desired, current) {
            capture.commit_first(Table::Raw);
        }
        let withdraw = Change::between(&none, &prepare.project(other), false);
        let changes_marks = [&capture, &withdraw].iter().any(|change| change.writes(Table::Mangle));
        let mut marks: BTreeSet<Mark> = BTreeSet::new();
        if changes_marks && (main.has_ours() || other.has_ours() || native) {
            marks.extend(saved_marks(desired));
        }
        let [of_main, of_other] = [main, other].map(live_marks);
        if !of_main.is_empty() && !of_other.is_empty() {
            // Also if no TPROXY rules remain: the next ones would look at these marks again.
            marks.extend(of_main.into_iter().chain(of_other));
        }
        self.unmark.extend(marks.into_iter().map(|mark| conntrack::Step::ClearForeignMark(family, mark)));
        if transition.is_needed() {
            self.settle.push(Change::between(desired, &capture.project(main), false));
        }
        self.prepare.push(prepare);
        self.capture.push(capture);
        self.withdraw.push(withdraw);
    }

    fn steps(self, current: &CurrentState) -> Vec<Step> {
        let Self { limit_native, prepare, capture, withdraw, unmark, settle } = self;
        let restores = |variant: Variant, changes: Vec<Change>| {
            let changes = changes.into_iter().filter(|change| !change.is_empty());
            changes.map(move |change| Step::Restore(Restore::new(variant, &change)))
        };
        let (main, other) = (current.variant, current.variant.other());
        let native = &current.native_tables;
        let mut steps = Vec::new();
        steps.extend(limit_native.then_some(Step::LimitNative));
        steps.extend(restores(other, prepare));
        steps.extend(restores(main, capture));
        let untracked = &current.connections.untracked;
        steps.extend((!untracked.is_empty()).then(|| Step::TrackConnections(untracked.clone())));
        steps.extend(restores(other, withdraw));
        steps.extend((!native.is_empty()).then(|| Step::DeleteNative(native.clone())));
        // Before the last commit: a run that is killed here leaves something to change, so the next one comes here too.
        steps.extend(unmark.into_iter().map(Step::Conntrack));
        steps.extend(restores(main, settle));
        steps
    }
}

/// The marks that live rules of ours use.
fn live_marks(observed: &Observed) -> BTreeSet<Mark> {
    observed.tables.get(&Table::Mangle).map(marks_in_use).unwrap_or_default()
}

/// The marks in use per family; a family is present as soon as it has any chain of ours.
fn marks(rules: &BTreeMap<(Variant, Family), Observed>) -> BTreeMap<Family, BTreeSet<Mark>> {
    let mut marks: BTreeMap<Family, BTreeSet<Mark>> = BTreeMap::new();
    for ((_, family), observed) in rules.iter().filter(|(_, observed)| observed.has_ours()) {
        marks.entry(*family).or_default().extend(live_marks(observed));
    }
    marks
}

/// Warnings to log before the steps are executed.
#[must_use]
pub fn notices(desired: &DesiredState, current: &CurrentState, steps: &[Step]) -> Vec<String> {
    let mut notices = Vec::new();
    for ((variant, family), observed) in &current.rules {
        let wanted = desired.rules.get(family).filter(|_| *variant == current.variant);
        for (table, live) in &observed.tables {
            let wanted = wanted.and_then(|rules| rules.tables.get(table));
            let unwanted = |chain: &Chain| wanted.is_none_or(|rules| !rules.chains.contains_key(chain));
            let stays =
                live.held.iter().filter(|(chain, _)| live.chains.contains_key(chain) && unwanted(chain));
            notices.extend(stays.map(|(chain, holder)| {
                let (table, chain) = (table.name(), chain.name());
                format!("{table} {chain} ({family}, {variant}) is kept, empty: the foreign chain {holder} jumps to it")
            }));
        }
    }
    let restores = steps.iter().filter_map(|step| match step {
        Step::Restore(restore) => Some(restore),
        Step::LimitNative
        | Step::DeleteNative(_)
        | Step::Network(_)
        | Step::Conntrack(_)
        | Step::TrackConnections(_) => None,
    });
    for line in restores.flat_map(|restore| &restore.matched_by_shape) {
        notices.push(format!(
            "deleting `{line}`: it is identical to a generated rule; if it is a foreign rule, add it again"
        ));
    }
    notices
}
