//! The live tables of a native backend, ours or Istio's, and their effect.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

use nfnetlink::nftables::{Expression, MetaKey, PayloadBase, Rule, Table};

use super::counters::counter;
use super::rule_family::{NAT, families, family_of};
use super::types::{ChainName, NativeTable};
use crate::model::{Chain, Family, Mark, NATIVE_MANGLE, PROXY_LOOPBACK_MARK, Why};
use crate::ordered::Ordered as _;

/// What the name of a set ends with that was written while another one of its name was in use.
pub const SECOND: &str = ".2";

/// The live tables of a native backend: those with the names of [`crate::model::NATIVE_TABLES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveTables {
    tables: Arc<Vec<Table>>,
    /// Names of the dormant ones: no packet meets their rules.
    dormant: Vec<String>,
    /// Names of those that only another program may change.
    owned: Vec<String>,
}

impl LiveTables {
    /// Live tables as they were read; `dormant` are the names of the dormant ones.
    #[must_use]
    pub fn new(tables: Vec<Table>, dormant: Vec<String>) -> Self {
        let tables = tables.into_iter().map(|table| first_names(table).normalized()).collect();
        Self { tables: Arc::new(tables), dormant, owned: Vec::new() }
    }

    /// Live tables as [`Self::new`] takes them; foreign rules in them keep their handles.
    #[must_use]
    pub fn with_handles(tables: Vec<Table>, dormant: Vec<String>) -> Self {
        let tables = tables.into_iter().map(with_foreign_handles).collect();
        Self { tables: Arc::new(tables), dormant, owned: Vec::new() }
    }

    /// Adds which ones a running program owns (`flags owner`): the kernel lets no other change them.
    #[must_use]
    pub fn with_owned(self, owned: Vec<String>) -> Self {
        Self { owned, ..self }
    }

    /// The first of the tables with these names that only another program may change.
    pub fn owned<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        names.into_iter().find(|name| self.owned.iter().any(|owned| owned == name))
    }

    /// The live tables, without what the kernel adds or changes.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The live tables that are not dormant.
    pub fn active_tables(&self) -> impl Iterator<Item = &Table> + Clone {
        self.tables.iter().filter(|table| !self.is_dormant(&table.name.name))
    }

    /// Names of the dormant ones: no packet meets their rules.
    #[must_use]
    pub fn dormant(&self) -> &[String] {
        &self.dormant
    }

    /// Whether packets may meet a rule of theirs.
    #[must_use]
    pub fn have_active_rules(&self) -> bool {
        self.active_tables().flat_map(|table| &table.chains).any(|chain| !chain.rules.is_empty())
    }

    /// Names of the dormant ones that hold rules, as nft has them.
    pub fn dormant_with_rules(&self) -> impl Iterator<Item = String> {
        let has_rules = |table: &&Table| table.chains.iter().any(|chain| !chain.rules.is_empty());
        let dormant = self.tables.iter().filter(|table| self.is_dormant(&table.name.name));
        dormant.filter(has_rules).map(|table| table.name.to_string())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The names of the live tables.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.tables.iter().map(|table| table.name.name.clone()).collect()
    }

    /// The tables that are not as desired: they differ, are dormant or missing, or are not desired.
    #[must_use]
    pub fn differing(&self, desired: &[NativeTable]) -> Vec<&'static str> {
        // In a first run none is there to be compared with.
        let (there, missing): (Vec<_>, Vec<_>) = desired.iter().partition(|table| self.has(table.name()));
        let normalized: Vec<_> = there.into_iter().map(|table| super::encode(table).normalized()).collect();
        let mut differing = self.differing_from(&normalized);
        differing.extend(missing.iter().map(|table| table.name()));
        crate::model::NATIVE_TABLES.into_iter().filter(|name| differing.contains(name)).collect()
    }

    /// The names of those that differ from desired ones in the form of [`Table::normalized`].
    #[must_use]
    pub fn differing_from(&self, desired: &[Table]) -> Vec<&'static str> {
        let of = |tables: &[Table], name: &str| tables.iter().position(|table| table.name.name == name);
        let differs = |name: &&str| {
            let (live, wanted) = (of(&self.tables, name), of(desired, name));
            let is_same = live.and_then(|at| self.tables.get(at)) == wanted.and_then(|at| desired.get(at));
            !is_same || wanted.is_some() && self.is_dormant(name)
        };
        crate::model::NATIVE_TABLES.into_iter().filter(differs).collect()
    }

    /// Live tables that are not desired.
    #[must_use]
    pub fn unwanted<'a>(&self, desired: impl Iterator<Item = &'a str>) -> Vec<String> {
        let desired: Vec<&str> = desired.collect();
        self.names().into_iter().filter(|name| !desired.contains(&name.as_str())).collect()
    }

    fn is_dormant(&self, name: &str) -> bool {
        self.dormant.iter().any(|dormant| dormant == name)
    }

    fn has(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name.name == name)
    }

    /// Whether this program wrote them: its rules carry their reasons. Istio's carry no comments. Tables
    /// without rules, which a run that was killed while it loaded sets may leave, do nothing.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.rules().next().is_none() || self.rules().any(|rule| reason(rule).is_some())
    }

    /// How many chains of ours they hold, counted once for each family whose packets get there, as iptables
    /// counts them.
    #[must_use]
    pub fn chains_of_ours(&self) -> usize {
        if !self.is_ours() {
            return 0;
        }
        let names: Vec<String> = Chain::ALL.map(|chain| ChainName::Own(chain).to_string()).to_vec();
        let own = |table: &Table| table.chains.iter().filter(|chain| names.contains(&chain.name)).count();
        self.tables.iter().map(|table| own(table) * families(table).len().max(1)).sum()
    }

    /// Whether they decide about new connections of a family; Istio's do for both.
    #[must_use]
    pub fn captures(&self, family: Family) -> bool {
        if !self.is_ours() {
            return !self.is_empty();
        }
        let nat = self.tables.iter().find(|table| table.name.name == NAT);
        nat.is_some_and(|nat| families(nat).contains(&family))
    }

    /// Whether there are rules of ours for packets of a family, or the rule that keeps translation.
    #[must_use]
    pub fn concerns(&self, family: Family) -> bool {
        let by_packets = || self.tables.iter().any(|table| families(table).contains(&family));
        self.is_ours() && (self.keeps_translation() || by_packets())
    }

    /// Whether there is a rule of ours with this reason for packets of a family.
    #[must_use]
    pub fn has_reason(&self, why: Why, family: Family) -> bool {
        let is_of = |rule: &Rule| family_of(rule).is_none_or(|only| only == family);
        self.rules().any(|rule| reason(rule) == Some(why) && is_of(rule))
    }

    /// Whether the rule that keeps translation is live.
    #[must_use]
    pub fn keeps_translation(&self) -> bool {
        let name = ChainName::Own(Chain::Established).to_string();
        let nat = self.tables.iter().find(|table| table.name.name == NAT);
        nat.is_some_and(|nat| nat.chains.iter().any(|chain| chain.name == name))
    }

    /// Whether there may be rules that mark packets.
    #[must_use]
    pub fn marks_packets(&self) -> bool {
        self.has(NATIVE_MANGLE)
    }

    /// The marks that they put on packets, without that of the proxy's own.
    #[must_use]
    pub fn marks(&self) -> BTreeSet<Mark> {
        let mut marks = BTreeSet::new();
        for rule in self.rules() {
            let mut loaded = None;
            for expression in &rule.expressions {
                if let Expression::Immediate { value, .. } = expression {
                    loaded = <[u8; 4]>::try_from(value.as_slice()).ok().map(u32::from_ne_bytes);
                } else if matches!(expression, Expression::SetMeta { key: MetaKey::Mark, .. }) {
                    marks.extend(loaded.take().map(Mark));
                } else if matches!(expression, Expression::Ct { .. } | Expression::Meta { .. }) {
                    // From here on the register holds something else.
                    loaded = None;
                }
            }
        }
        marks.remove(&PROXY_LOOPBACK_MARK);
        marks
    }

    /// The ports that they redirect to.
    #[must_use]
    pub fn redirect_ports(&self) -> BTreeSet<u16> {
        let port = |pair: &[Expression]| match pair {
            [Expression::Immediate { value, .. }, Expression::Redirect { .. }] => {
                <[u8; 2]>::try_from(value.as_slice()).ok().map(u16::from_be_bytes)
            }
            _ => None,
        };
        self.rules().flat_map(|rule| rule.expressions.windows(2)).filter_map(port).into_set()
    }

    /// Whether they compare an address of packets with this one.
    #[must_use]
    pub fn refers_to(&self, address: Ipv6Addr) -> bool {
        let compares = |pair: &[Expression]| match pair {
            [Expression::Payload { base: PayloadBase::Network, .. }, Expression::Compare { value, .. }] => {
                *value == address.octets()
            }
            _ => false,
        };
        self.rules().any(|rule| rule.expressions.windows(2).any(compares))
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules)
    }
}

/// How many packets the rules of others in a table have met, as far as they count.
#[must_use]
pub fn foreign_packets(table: &Table) -> u64 {
    let foreign = table.chains.iter().flat_map(|chain| &chain.rules).filter(|rule| reason(rule).is_none());
    foreign.filter_map(counter).map(|(packets, _)| packets).sum()
}

/// Why a rule of ours exists: its comment tells.
fn reason(rule: &Rule) -> Option<Why> {
    let slug = rule.comment.as_ref()?.as_str().split_once(": ")?.0;
    Why::ALL.iter().copied().find(|why| why.slug() == slug)
}

/// The table in the form in which it is compared; foreign rules keep their handles, which no comparison is
/// affected by: a table with such a rule is not equal to one of ours.
fn with_foreign_handles(table: Table) -> Table {
    let read = table.chains.clone();
    let mut table = first_names(table).normalized();
    for chain in &mut table.chains {
        let Some(read) = read.iter().find(|read| read.name == chain.name) else { continue };
        for (rule, read) in chain.rules.iter_mut().zip(&read.rules) {
            rule.handle = read.handle.filter(|_| reason(read).is_none());
        }
    }
    table
}

/// A set that was written while another one of its name was in use has a second name; here it gets the first
/// one.
fn first_names(mut table: Table) -> Table {
    let names: BTreeSet<String> = table.sets.iter().map(|set| set.name.clone()).into_set();
    let first = |name: &mut String| {
        // Both are there after a run that was killed while it loaded one.
        let short = name.strip_suffix(SECOND).filter(|short| !names.contains(*short)).map(str::to_owned);
        if let Some(short) = short {
            *name = short;
        }
    };
    table.sets.iter_mut().for_each(|set| first(&mut set.name));
    let rules = table.chains.iter_mut().flat_map(|chain| &mut chain.rules);
    for expression in rules.flat_map(|rule| &mut rule.expressions) {
        if let Expression::Lookup { set, .. } = expression {
            first(set);
        }
    }
    table
}
