//! Plans the steps from the current state to the desired state.
//!
//! A dry run prints these very steps; a real run executes them.

mod digest;
mod lost;
mod notices;
mod phases;
mod step;
mod walked;
mod write_record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use notices::{Notices, kept_rules, lost_queries, notices};
use phases::Phases;
pub use step::{DeleteByHandle, ReplaceNative, Restore, Step};
pub use walked::Walked;
use write_record::{earlier_ports, found, left, recorded};

use crate::config::CaptureConfig;
use crate::connections::conntrack;
use crate::connections::{self, Connections, Exemption};
use crate::explain::Listener;
use crate::model::{Backend, Chain, Family, FamilyRules, Mark, PerFamily, Table, Variant, Why};
use crate::nft;
use crate::ordered::Ordered as _;
use crate::parse::{Observed, ObservedTable};
use crate::reconcile::{Change, marks_in_use};
use crate::record::Record;
use crate::routing;
use crate::text::count;

/// The current state of the namespace.
#[derive(Clone, Debug)]
pub struct CurrentState {
    /// What is going to hold our rules.
    pub backend: Backend,
    /// The live rules of each variant and family that has chains of ours.
    pub rules: BTreeMap<(Variant, Family), Observed>,
    /// The tables of a native backend, ours or Istio's.
    pub native: nft::LiveTables,
    /// Address, policy rules and routes.
    pub network: routing::Observed,
    /// Connections that are tracked.
    pub entries: conntrack::TrackingState,
    /// Open TCP connections, as far as the desired state concerns them.
    pub connections: Connections,
    /// The sockets that wait for TCP connections, if there are foreign rules; `None` if that is not known.
    pub tcp_listeners: Option<Vec<Listener>>,
    /// The alias of `lo`, in which runs leave their record.
    pub alias: Option<String>,
    /// The dormant tables `ip` and `ip6` of nf_tables.
    pub dormant: Vec<(Family, String)>,
    /// Chains that iptables-nft cannot use, by their names.
    pub unsuitable: Vec<(Family, Table, String)>,
    /// The nftables tables that running programs own (`flags owner`), as `nft` names them.
    pub owned: Vec<String>,
    /// Other programs' nftables tables in which packets are before they meet our rules.
    pub foreign: Vec<nfnetlink::nftables::Table>,
    /// The tables of the guard's lockdown.
    pub lockdown: Vec<nfnetlink::nftables::Table>,
    /// What is in their sets and maps, by table.
    pub foreign_sets: Vec<(nfnetlink::nftables::TableName, Vec<nfnetlink::nftables::Members>)>,
    /// Rules of iptables-legacy, all foreign, while another backend holds ours.
    pub foreign_legacy: PerFamily<Observed>,
    /// Whether rules may be in the tables of iptables-legacy that are not seen here.
    pub legacy_unlisted: bool,
    /// Whether the kernel is a sandbox's, such as gVisor. It tracks connections by itself, takes no alias of
    /// `lo`, and keeps no tag of an address.
    pub is_sandbox: bool,
}

impl CurrentState {
    /// The state of an empty namespace.
    #[must_use]
    pub fn empty(backend: Backend) -> Self {
        Self {
            backend,
            rules: BTreeMap::new(),
            native: nft::LiveTables::default(),
            network: routing::Observed::default(),
            entries: conntrack::TrackingState::None,
            connections: Connections::default(),
            tcp_listeners: None,
            alias: None,
            dormant: Vec::new(),
            unsuitable: Vec::new(),
            owned: Vec::new(),
            foreign: Vec::new(),
            lockdown: Vec::new(),
            foreign_sets: Vec::new(),
            foreign_legacy: PerFamily::new(),
            legacy_unlisted: false,
            is_sandbox: false,
        }
    }

    /// The variant of iptables whose rules of a family are followed: that of the backend, if it has some.
    #[must_use]
    pub fn variant_of(&self, family: Family) -> Option<Variant> {
        let has_rules = |variant: &Variant| self.rules.contains_key(&(*variant, family));
        let first = || Variant::ALL.into_iter().find(has_rules);
        self.backend.variant().filter(has_rules).or_else(first)
    }

    /// The dormant tables of iptables-nft among those of these rules, as nft names them.
    #[must_use]
    pub fn dormant_with(&self, rules: &PerFamily<FamilyRules>) -> Vec<String> {
        let has_rules = |family, name: &str| {
            let tables = rules.get(&family).map(|rules| &rules.tables);
            tables.into_iter().flatten().any(|(table, rules)| table.name() == name && !rules.is_empty())
        };
        let dormant = self.dormant.iter().filter(|(family, name)| has_rules(*family, name));
        dormant
            .map(|(family, name)| match family {
                Family::V4 => format!("ip {name}"),
                Family::V6 => format!("ip6 {name}"),
            })
            .collect()
    }

    /// The rules that packets meet: those of iptables-nft without dormant tables.
    pub fn leave_out_dormant(&mut self) {
        for (family, name) in &self.dormant {
            if let Some(observed) = self.rules.get_mut(&(Variant::Nft, *family)) {
                observed.remove(name);
            }
        }
    }

    /// What the last run recorded.
    #[must_use]
    pub fn record(&self) -> Option<Record> {
        Record::read(self.alias.as_deref())
    }

    /// What decides which conntrack entries are stale.
    fn tracked(&self, desired: &DesiredState) -> conntrack::ObservedState<'_> {
        let Self { rules, native, entries, .. } = self;
        // Where no flow is tracked, none changes.
        let is_tracked = *entries != conntrack::TrackingState::None;
        let flows = || conntrack::native_flows(native, &nft::tables(&desired.rules));
        let native = if native.is_empty() {
            conntrack::Native::Absent
        } else if native.is_ours() {
            conntrack::Native::Replaced(if is_tracked { flows() } else { PerFamily::new() })
        } else {
            conntrack::Native::Unread
        };
        conntrack::ObservedState { rules, native, entries }
    }

    /// Whether there are no rules of ours or of Istio's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.native.is_empty() && !self.rules.values().any(Observed::has_ours)
    }

    /// Whether rules of ours may decide about new connections of a family. What only keeps translation does
    /// not.
    fn captures(&self, family: Family) -> bool {
        let decides = |table: &ObservedTable| {
            table.hooks.values().flatten().any(|line| line.jump.is_some())
                || table.chains.keys().any(|chain| *chain != Chain::Established)
        };
        let mut live = self.rules.iter().filter(|((_, of), _)| *of == family);
        live.any(|(_, observed)| observed.tables.values().any(decides))
            || self.native.captures(family)
            || self.native.marks_packets()
    }

    /// What an interrupted first capture of a family has left in any backend.
    #[must_use]
    pub fn exemption(&self, family: Family) -> Exemption {
        let live = self.rules.iter().filter(|((_, of), _)| *of == family);
        let left = live.map(|(_, observed)| Exemption::left(observed));
        let is_native = |(_, why): &(Exemption, Why)| self.native.has_reason(*why, family);
        let native = Exemption::REASONS.into_iter().filter(is_native).map(|(exemption, _)| exemption);
        left.chain(native).max().unwrap_or_default()
    }

    /// Whether the chosen backend holds the rule that keeps translation of a family.
    fn keeps_translation(&self, family: Family) -> bool {
        match self.backend {
            Backend::Native => self.native.keeps_translation(),
            Backend::Iptables(variant) => {
                self.rules.get(&(variant, family)).is_some_and(connections::keeps_translation)
            }
        }
    }
}

/// The desired state.
#[derive(Clone, Debug)]
pub struct DesiredState {
    /// The rules of each family; empty ones for a family that gets none.
    pub rules: PerFamily<FamilyRules>,
    /// Address, policy rules and routes.
    pub network: routing::Desired,
    /// Rewrite rules that are already correct (`--force-apply`).
    pub rewrite: bool,
    /// The options that the rules come from, which tell the kinds of traffic that warnings are about. `None`
    /// where others ask about these, and for a clean-up.
    pub config: Option<Arc<CaptureConfig>>,
}

impl DesiredState {
    /// No rules, routes or addresses: the desired state of a cleanup.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            rules: Family::ALL.into_iter().map(|family| (family, FamilyRules::none(family))).collect(),
            network: routing::Desired::default(),
            rewrite: false,
            config: None,
        }
    }

    /// The desired state with the rule that keeps translation up in each family that loses its rules while
    /// connections need it, and with the passthrough address while sockets use it.
    #[must_use]
    pub fn keeping_translation(mut self, connections: &Connections) -> Self {
        for (family, rules) in self.rules.iter_mut() {
            let translated = connections.translated.get(family).is_some_and(|translated| translated.any());
            if (translated || connections.may_begin.contains(family)) && rules.tables.is_empty() {
                *rules = connections::keep_translation(*family);
            }
        }
        self.network.passthrough |= connections.from_passthrough > 0;
        self
    }

    /// The desired state, accepting the live rule that keeps translation in each family that has it and gets
    /// no rules.
    #[must_use]
    pub fn accepting_kept_translation(mut self, current: &CurrentState) -> Self {
        for (family, rules) in self.rules.iter_mut().filter(|(_, rules)| rules.tables.is_empty()) {
            if current.keeps_translation(*family) {
                *rules = connections::keep_translation(*family);
            }
        }
        self
    }

    /// Whether a family is to have rules, and not only the one that keeps translation.
    fn captures(&self, family: Family) -> bool {
        let rules = self.rules.get(&family).filter(|rules| rules.count() > 0);
        rules.is_some_and(|rules| !connections::only_keeps_translation(rules))
    }

    /// Whether no family is to have a rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.values().all(|rules| rules.count() == 0)
    }

    /// Whether only the rule is to stay that keeps translation.
    #[must_use]
    pub fn only_keeps_translation(&self) -> bool {
        !self.is_empty() && Family::ALL.into_iter().all(|family| !self.captures(family))
    }

    /// The number of rules of each family.
    #[must_use]
    pub fn counts(&self) -> String {
        let counts = self
            .rules
            .values()
            .filter(|rules| rules.count() > 0 && !connections::only_keeps_translation(rules));
        let counts: Vec<_> =
            counts.map(|rules| count(rules.count(), &format!("{} rule", rules.family))).collect();
        if counts.is_empty() { "no rules".to_owned() } else { counts.join(", ") }
    }
}

/// The steps from the current state to the desired state; none if they are equal.
#[must_use]
pub fn plan(desired: &DesiredState, current: &CurrentState) -> Vec<Step> {
    let evidence = evidence(current);
    let network = routing::plan(&desired.network, &current.network, &evidence);
    let tracked = current.tracked(desired);
    let phases = Phases::of(desired, current, &tracked);
    let wanted = (!desired.is_empty()).then(|| {
        let passthrough = routing::passthrough_is_ours(&desired.network, &current.network, &evidence);
        phases.record(desired, passthrough)
    });
    let left = left(desired, current);
    let found = found(current);
    let transitional = phases.transitional(&found);
    let before = network.before.into_iter().map(Step::Network);
    let (capture, finish) = phases.steps(current);
    // A sandbox may refuse the rules, and can keep no record of an address.
    let mut steps: Vec<Step> = if current.is_sandbox {
        capture.into_iter().chain(before).collect()
    } else {
        before.chain(capture).collect()
    };
    steps.extend(network.after.into_iter().map(Step::Network));
    let mut changed = captures_changed(steps.iter().chain(&finish));
    changed.retain(|family| desired.captures(*family) || current.captures(*family));
    let mut stale = conntrack::plan(desired.rules.values(), &tracked, changed);
    // A first capture tracks new connections from its first commit on, and captures them from a later one.
    let untracked = &current.connections.untracked;
    stale.tcp.extend(untracked.iter().copied());
    if !untracked.is_empty() && current.entries != conntrack::TrackingState::None {
        steps.insert(0, Step::Conntrack(conntrack::Step::DeleteEnded(untracked.clone())));
    }
    if !stale.is_empty() {
        let dns = conntrack::dns_rules(desired.rules.values());
        // A query that met the rules before may not have its entry yet. Steps about entries that follow each
        // other share one walk over the table.
        if !stale.dns.is_empty() {
            let last = steps.iter().rposition(|step| !matches!(step, Step::Conntrack(_)));
            steps.insert(last.map_or(0, |last| last + 1), Step::AwaitPackets);
        }
        steps.insert(0, Step::Conntrack(conntrack::Step::Note(stale.clone())));
        steps.push(Step::Conntrack(conntrack::Step::DeleteStale(stale, dns)));
    }
    steps.extend(finish);
    let earlier = earlier_ports(desired, current);
    recorded(steps, current, (wanted, left, earlier), &found, transitional.as_ref())
}

/// The families whose TCP capture the steps change, or may change.
fn captures_changed<'a>(steps: impl Iterator<Item = &'a Step>) -> BTreeSet<Family> {
    let families = steps.flat_map(|step| match step {
        Step::Restore(restore) if restore.change.tables.iter().any(|change| change.table != Table::Raw) => {
            vec![restore.family()]
        }
        Step::DeleteNative(_) | Step::ReplaceNative(_) => Family::ALL.to_vec(),
        Step::Restore(_)
        | Step::LimitNative
        | Step::Network(_)
        | Step::Conntrack(_)
        | Step::AwaitPackets
        | Step::TrackConnections(_)
        | Step::DeleteByHandle(_)
        | Step::Record(_) => Vec::new(),
    });
    families.into_set()
}

/// The marks that live rules of ours use.
fn live_marks(observed: &Observed) -> BTreeSet<Mark> {
    observed.tables.get(&Table::Mangle).map(marks_in_use).unwrap_or_default()
}

/// What is there besides policy rules and routes. With a record of ours nothing that carries no tag is
/// Istio's.
fn evidence(current: &CurrentState) -> routing::Evidence {
    let record = current.record();
    let mut istio: PerFamily<BTreeSet<Mark>> = PerFamily::new();
    let live = current.rules.iter().filter(|(_, observed)| observed.record.is_none() && observed.has_ours());
    for ((_, family), observed) in live {
        istio.or_default(*family).extend(live_marks(observed));
    }
    // Without a record and tags: nothing but capture uses `::6`.
    let passthrough = current.is_sandbox || record.is_some_and(|record| record.passthrough);
    routing::Evidence { istio, passthrough }
}

/// Dormant tables that are to hold desired rules, as nft names them.
#[must_use]
pub fn dormant(desired: &DesiredState, current: &CurrentState) -> Vec<String> {
    if current.backend == Backend::Iptables(Variant::Nft) {
        current.dormant_with(&desired.rules)
    } else {
        Vec::new()
    }
}

/// What is changed in each family, if anything: in the chosen variant towards the desired, in the other one
/// to nothing.
fn changes(desired: &DesiredState, current: &CurrentState, variant: Variant) -> Vec<Change> {
    let chosen = current.backend == Backend::Iptables(variant);
    let change = |family| {
        let nothing = Observed::empty(family);
        let none = FamilyRules::none(family);
        let wanted = desired.rules.get(&family).filter(|_| chosen).unwrap_or(&none);
        let observed = current.rules.get(&(variant, family)).unwrap_or(&nothing);
        Change::between(wanted, observed, desired.rewrite && chosen)
    };
    Family::ALL.into_iter().map(change).collect()
}
