//! Plans the steps from the current state to the desired state.
//!
//! A dry run prints these very steps; a real run executes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::connections::{self, Connections};
use crate::conntrack;
use crate::diff::{Change, TableChange, Twin, holder, marks_in_use};
use crate::foreign;
use crate::model::{Chain, Family, FamilyRules, Mark, NATIVE_MANGLE, Table, Variant};
use crate::parse::Observed;
use crate::record::Record;
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
    /// The alias of `lo`, in which runs leave their record.
    pub alias: Option<String>,
    /// Tables of iptables-nft that are switched off.
    pub dormant: Vec<(Family, Table)>,
}

impl CurrentState {
    /// What the last run recorded.
    #[must_use]
    pub fn record(&self) -> Option<Record> {
        self.alias.as_deref().and_then(|alias| alias.parse().ok())
    }

    /// What decides which conntrack entries are stale.
    fn tracked(&self) -> conntrack::Live<'_> {
        let Self { rules, native_tables, entries, .. } = self;
        conntrack::Live { rules, native: !native_tables.is_empty(), entries }
    }

    /// Whether there are no rules of ours or of Istio's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.native_tables.is_empty() && !self.rules.values().any(Observed::has_ours)
    }

    /// Whether a native backend left rules that may mark packets.
    fn has_native_marks(&self) -> bool {
        self.native_tables.iter().any(|table| table == NATIVE_MANGLE)
    }
}

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
            if (translated || connections.may_begin.contains(family)) && rules.tables.is_empty() {
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

    /// Whether no family is to have a rule.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.rules.values().all(|rules| rules.count() == 0)
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
    /// Deletes rules by handle that are behind foreign twins.
    DeleteTwins(DeleteTwins),
    /// Sets the alias of `lo`, which is our record; empty, it goes.
    Record(String),
}

/// Rules of iptables-nft that only their handle tells from foreign twins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteTwins {
    /// Their family.
    pub family: Family,
    /// Their table.
    pub table: Table,
    /// The rules.
    pub twins: Vec<Twin>,
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
    /// Whether a foreign rule that is added meanwhile could be deleted in the place of ours: then nothing may change between
    /// reading and writing. In iptables-nft that is so only where rules are deleted by their place.
    pub by_place: bool,
}

impl Restore {
    fn new(variant: Variant, change: &Change) -> Self {
        Self {
            variant,
            family: change.family,
            text: render::restore(change),
            tables: change.tables.iter().map(|table| table.table).collect(),
            by_place: change.depends_on_places() || (variant == Variant::Legacy && change.may_meet_twins()),
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
            Self::Record(alias) => write!(f, "ip link set dev lo alias '{alias}'"),
            Self::DeleteTwins(DeleteTwins { family, table, twins }) => {
                let nft_family = match family {
                    Family::V4 => "ip",
                    Family::V6 => "ip6",
                };
                let commands = twins.iter().map(|Twin { hook, handle, text: _ }| {
                    let (table, hook) = (table.name(), hook.name());
                    format!("nft delete rule {nft_family} {table} {hook} handle {handle}")
                });
                f.write_str(&commands.collect::<Vec<_>>().join("; "))
            }
            Self::Restore(Restore { variant, family, text: _, tables, by_place: _ }) => {
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
    let evidence = evidence(current);
    let network = routing::plan(&desired.network, &current.network, &evidence);
    let phases = Phases::of(desired, current);
    let wanted = (!desired.is_nothing()).then(|| {
        let passthrough = routing::passthrough_is_ours(&desired.network, &current.network, &evidence);
        Record::of(desired.rules.values(), &phases.capture, passthrough, current.variant)
    });
    let transitional = phases.transitional(current.variant);
    let mut steps: Vec<Step> = network.before.into_iter().map(Step::Network).collect();
    steps.extend(phases.steps(current));
    steps.extend(network.after.into_iter().map(Step::Network));
    let mut stale = conntrack::plan(desired.rules.values(), current.tracked(), captures_changed(&steps));
    // A first capture tracks new connections from its first commit on, and captures them from the last.
    stale.tcp.extend(current.connections.untracked.iter().copied());
    if !stale.is_empty() {
        steps.insert(0, Step::Conntrack(conntrack::Step::Note(stale.clone())));
        steps.push(Step::Conntrack(conntrack::Step::DeleteStale(stale)));
    }
    recorded(steps, current, wanted, transitional.as_ref())
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
        | Step::TrackConnections(_)
        | Step::DeleteTwins(_)
        | Step::Record(_) => Vec::new(),
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
        if conntrack::zones_first(desired, current.tracked()) {
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

    /// What is live for a while only.
    fn transitional(&self, main: Variant) -> Option<Record> {
        let transition = !self.settle.is_empty();
        let prepared = || Record::of_changes(main.other(), &self.prepare);
        transition.then(|| Record::of_changes(main, &self.capture).and(&prepared()))
    }

    fn steps(self, current: &CurrentState) -> Vec<Step> {
        let Self { limit_native, prepare, capture, withdraw, unmark, settle } = self;
        let restores = |variant: Variant, changes: Vec<Change>| {
            changes.into_iter().flat_map(move |change| written(variant, &change))
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

fn written(variant: Variant, change: &Change) -> Vec<Step> {
    let twins = change.tables.iter().filter(|table| !table.twins.is_empty()).map(|table| {
        let (table, twins) = (table.table, table.twins.clone());
        Step::DeleteTwins(DeleteTwins { family: change.family, table, twins })
    });
    let restore = change.tables.iter().any(TableChange::needs_restore);
    let restore = restore.then(|| Step::Restore(Restore::new(variant, change)));
    // A run that is killed in between leaves a rule that a foreign twin makes redundant, and no part of a set of rules.
    restore.into_iter().chain(twins).collect()
}

/// The steps with the record around them: while one set of rules takes over from another, it says what either wrote,
/// so that a run that is killed half way leaves nothing that the next one would not recognise.
fn recorded(
    mut steps: Vec<Step>,
    current: &CurrentState,
    wanted: Option<Record>,
    transitional: Option<&Record>,
) -> Vec<Step> {
    let live = current.record();
    // An alias that another program set is not touched.
    if current.alias.is_some() && live.is_none() {
        return steps;
    }
    let Some(wanted) = wanted else {
        steps.extend(live.map(|_| Step::Record(String::new())));
        return steps;
    };
    let settled = match &live {
        // Rules of Istio's binary that are right already stay Istio's.
        None => steps.is_empty(),
        Some(live) => steps.is_empty() && live.covers(&wanted),
    };
    if settled {
        return steps;
    }
    let wanted = live.iter().fold(wanted, Record::with_places_of);
    let before = live.as_ref().into_iter().chain(transitional).fold(None, |before: Option<Record>, more| {
        Some(before.map_or_else(|| more.clone(), |before| more.taking_over(&before)))
    });
    let first = match before {
        Some(before) if before != wanted && !steps.is_empty() => wanted.taking_over(&before),
        _ => wanted.clone(),
    };
    let last = (first != wanted).then(|| wanted.alias()).flatten();
    let first = first.alias().filter(|alias| current.alias.as_ref() != Some(alias));
    steps.splice(0..0, first.map(Step::Record)).for_each(drop);
    steps.extend(last.map(Step::Record));
    steps
}

/// What is there besides policy rules and routes. With a record of ours nothing that carries no tag is Istio's.
fn evidence(current: &CurrentState) -> routing::Evidence {
    let record = current.record();
    let mut istio: BTreeMap<Family, BTreeSet<Mark>> = BTreeMap::new();
    let live = current.rules.iter().filter(|(_, observed)| observed.record.is_none() && observed.has_ours());
    for ((_, family), observed) in live {
        istio.entry(*family).or_default().extend(live_marks(observed));
    }
    routing::Evidence { istio, passthrough: record.is_some_and(|record| record.passthrough) }
}

/// Tables that are to hold rules of the desired and are switched off, as nft names them.
#[must_use]
pub fn dormant(desired: &DesiredState, current: &CurrentState) -> Vec<String> {
    let needed = |(family, table): &&(Family, Table)| {
        desired.rules.get(family).is_some_and(|rules| rules.tables.contains_key(table))
    };
    let nft = current.dormant.iter().filter(|_| current.variant == Variant::Nft);
    nft.filter(needed)
        .map(|(family, table)| match family {
            Family::V4 => format!("ip {}", table.name()),
            Family::V6 => format!("ip6 {}", table.name()),
        })
        .collect()
}

/// What is changed in each family, if anything: in the chosen variant towards the desired, in the other one to nothing.
fn changes(desired: &DesiredState, current: &CurrentState, variant: Variant) -> Vec<Change> {
    let chosen = variant == current.variant;
    let change = |family| {
        let nothing = Observed::nothing(family);
        let none = FamilyRules::none(family);
        let wanted = desired.rules.get(&family).filter(|_| chosen).unwrap_or(&none);
        let observed = current.rules.get(&(variant, family)).unwrap_or(&nothing);
        Change::between(wanted, observed, desired.rewrite && chosen)
    };
    Family::ALL.into_iter().map(change).collect()
}

/// Warnings to log before the steps are executed.
#[must_use]
pub fn notices(desired: &DesiredState, current: &CurrentState) -> Vec<String> {
    let mut notices = Vec::new();
    for ((variant, family), observed) in &current.rules {
        let wanted = desired.rules.get(family).filter(|_| *variant == current.variant);
        for (table, live) in &observed.tables {
            let wanted = wanted.and_then(|rules| rules.tables.get(table));
            let unwanted = |chain: &Chain| wanted.is_none_or(|rules| !rules.chains.contains_key(chain));
            let stays = live.chains.keys().filter(|chain| unwanted(chain));
            let held = stays.filter_map(|chain| Some((chain, holder(*table, live, *chain)?)));
            notices.extend(held.map(|(chain, holder)| {
                let (table, chain) = (table.name(), chain.name());
                format!("{table} {chain} ({family}, {variant}) is kept, empty: a foreign rule in {holder} jumps to it")
            }));
        }
    }
    let first = foreign::that_decide_first(&desired.rules, current.variant, &current.rules);
    notices.extend(first.iter().map(ToString::to_string));
    for variant in Variant::ALL {
        for change in changes(desired, current, variant).iter().filter(|change| !change.doubtful.is_empty()) {
            let lines: Vec<_> = change.doubtful.iter().map(|line| format!("`{line}`")).collect();
            notices.push(format!(
                "rules that may be ours or foreign stay ({}, {variant}): {}: delete those that are not needed",
                change.family,
                lines.join(", ")
            ));
        }
    }
    notices
}
