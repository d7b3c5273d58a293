//! Rules of iptables that captured packets meet on their way to the proxy: in INPUT, `filter` OUTPUT
//! and `mangle` and `nat` POSTROUTING.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::captured_traffic::{CapturedTraffic, Taken};
use super::{DEEPEST, Examined, Found, Placement, PrecedingRule, Targets};
use crate::live_rules::{Effect, LiveRule};
use crate::model::{Backend, Family, Hook, Table, Target, Variant};
use crate::ordered::Ordered as _;
use crate::parse::{INPUT, Observed, ObservedTable, POSTROUTING};

/// The ports with which captured packets come to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcceptedPorts {
    /// `the ports 15001, 15006`, for a hint.
    pub(super) words: String,
    /// `15001,15006`, if these are all: packets that TPROXY captures keep their port.
    pub(super) listed: Option<String>,
}

impl AcceptedPorts {
    pub(super) fn of(captured: &[CapturedTraffic]) -> Self {
        let ports: BTreeSet<u16> = captured.iter().flat_map(CapturedTraffic::ports).into_set();
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        if ports.is_empty() {
            return Self { words: "the captured ports".to_owned(), listed: None };
        }
        let are_all = !captured.iter().any(|captured| captured.keeps_port);
        Self { words: format!("the ports {}", ports.join(", ")), listed: are_all.then(|| ports.join(",")) }
    }
}

impl Examined<'_> {
    /// The rules and policies there that may decide. The tables `filter` and `security` of iptables-nft are
    /// examined with the other base chains.
    pub(super) fn later(&self, observed: &Observed, backend: Backend) -> Vec<PrecedingRule> {
        let captured = CapturedTraffic::of(self.desired);
        let none = ObservedTable::default();
        let table = |table| observed.tables.get(&table).unwrap_or(&none);
        let (filter, security) = (&observed.filter, &observed.security);
        let of_nft = self.variant == Variant::Nft && backend != Backend::Native;
        let of_hooks = |name, table| [INPUT, POSTROUTING].map(|chain| behind(name, chain, table));
        let mut chains: Vec<_> = of_hooks("mangle", table(Table::Mangle))
            .into_iter()
            .chain(of_hooks("nat", table(Table::Nat)))
            .collect();
        if !of_nft {
            chains.extend([behind("filter", INPUT, filter), output(observed.family, "filter", filter)]);
            chains
                .extend([behind("security", INPUT, security), output(observed.family, "security", security)]);
        }
        let mut found = Vec::new();
        for (name, chain, table, rules, has_drop_policy) in chains {
            let is_output = chain != INPUT;
            let kinds: Vec<Taken> = captured.taken(is_output).collect();
            let may_match = |rule: &LiveRule| captured.may_match_taken(rule, is_output);
            let mut search = Search::new(&kinds, &may_match, &table.foreign);
            for rule in search.met(&rules, 0) {
                if let Some(target) = search.drops(rule, 0) {
                    found.push((name, Found::rule(chain, rule), target));
                }
            }
            if has_drop_policy && !(search.accept_all(&rules) || search.drop_the_rest(&rules, 0)) {
                found.push((name, Found::Policy(chain), Targets::of("DROP")));
            }
        }
        let place = || Placement::Later(AcceptedPorts::of(std::slice::from_ref(&captured)));
        let Self { family, variant, of_other_variant, desired: _ } = *self;
        found
            .into_iter()
            .map(|(table, found, targets)| PrecedingRule {
                family,
                variant,
                table,
                found,
                targets,
                of_other_variant,
                place: place(),
                translates_dns: false,
                publishes: false,
                drops_sources: false,
                is_by_tproxy: false,
            })
            .collect()
    }
}

/// A chain that packets meet behind ours: name of the table and the chain, table, rules, whether its policy
/// is to drop.
type Behind<'a> = (&'static str, &'static str, &'a ObservedTable, Vec<LiveRule>, bool);

fn behind<'a>(name: &'static str, chain: &'static str, table: &'a ObservedTable) -> Behind<'a> {
    let rules = table.foreign.get(chain).cloned().unwrap_or_default();
    (name, chain, table, rules, table.drops_behind.contains(chain))
}

fn output<'a>(family: Family, name: &'static str, table: &'a ObservedTable) -> Behind<'a> {
    let rules = table.hook(Hook::Output).iter().map(|line| line.live(family)).collect();
    (name, Hook::Output.name(), table, rules, table.drops.contains(&Hook::Output))
}

/// The search through rules that packets of some kinds meet.
pub(super) struct Search<'a> {
    kinds: &'a [Taken],
    /// Whether a rule may match packets of one of the kinds.
    may_match: &'a dyn Fn(&LiveRule) -> bool,
    chains: &'a BTreeMap<String, Vec<LiveRule>>,
    seen: BTreeSet<String>,
    /// Which chains accept all packets of which kind, as far as that is known: chains that many rules jump to
    /// are read once.
    accepting: RefCell<BTreeMap<(String, Taken), bool>>,
    /// Which chains drop what is left in them.
    dropping: RefCell<BTreeMap<String, bool>>,
}

impl<'a> Search<'a> {
    pub(super) const fn new(
        kinds: &'a [Taken],
        may_match: &'a dyn Fn(&LiveRule) -> bool,
        chains: &'a BTreeMap<String, Vec<LiveRule>>,
    ) -> Self {
        Self {
            kinds,
            may_match,
            chains,
            seen: BTreeSet::new(),
            accepting: RefCell::new(BTreeMap::new()),
            dropping: RefCell::new(BTreeMap::new()),
        }
    }

    /// Whether the rules of a base chain accept all packets of all kinds, so that none gets to its policy.
    pub(super) fn accept_all(&self, rules: &[LiveRule]) -> bool {
        self.kinds.iter().all(|taken| self.chain_accepts(rules, *taken, 0))
    }

    /// The rules up to the one behind which no packet of any kind is left.
    pub(super) fn met<'r>(&self, rules: &'r [LiveRule], depth: usize) -> &'r [LiveRule] {
        let is_end = |rule: &LiveRule, taken| self.accepts(rule, taken, depth) || self.drops_all(rule, depth);
        let end = |taken: &Taken| rules.iter().position(|rule| is_end(rule, *taken));
        let ends: Option<Vec<usize>> = self.kinds.iter().map(end).collect();
        let last = ends.and_then(|ends| ends.into_iter().max());
        last.and_then(|last| rules.get(..=last)).unwrap_or(rules)
    }

    /// Whether a rule drops every packet, itself or by the chain that it jumps to.
    fn drops_all(&self, rule: &LiveRule, depth: usize) -> bool {
        let drops_here = || match rule.chain() {
            Some((name, _)) => self.named_drops(name, depth),
            None => rule.effect().stops_packets(),
        };
        rule.is_for_all() && drops_here()
    }

    /// Whether no packet gets behind the chain `name`, `depth` jumps deep, as a rule of it drops what is
    /// left.
    fn named_drops(&self, name: &str, depth: usize) -> bool {
        if let Some(known) = self.dropping.borrow().get(name) {
            return *known;
        }
        let rules = self.chains.get(name).filter(|_| depth < DEEPEST);
        let drops = rules.is_some_and(|rules| self.drop_the_rest(rules, depth + 1));
        self.dropping.borrow_mut().insert(name.to_owned(), drops);
        drops
    }

    /// Whether one of these rules drops every packet, and no earlier one leads some to the end.
    pub(super) fn drop_the_rest(&self, rules: &[LiveRule], depth: usize) -> bool {
        let at = rules.iter().position(|rule| self.drops_all(rule, depth));
        let before = at.and_then(|at| rules.get(..at));
        before.is_some_and(|before| !before.iter().any(|rule| self.leads_to_the_end(rule, depth)))
    }

    /// Whether a rule accepts all packets of a kind, itself or by the chain that it jumps to.
    pub(super) fn accepts(&self, rule: &LiveRule, taken: Taken, depth: usize) -> bool {
        let accepts_here = || match rule.chain() {
            Some((name, _)) => self.named_accepts(name, taken, depth),
            None => *rule.effect() == Effect::Known(Target::Accept),
        };
        taken.all_match(rule) && accepts_here()
    }

    /// Whether the chain `name`, `depth` jumps deep, accepts all packets of a kind.
    fn named_accepts(&self, name: &str, taken: Taken, depth: usize) -> bool {
        let key = (name.to_owned(), taken);
        if let Some(known) = self.accepting.borrow().get(&key) {
            return *known;
        }
        let rules = self.chains.get(name).filter(|_| depth < DEEPEST);
        let accepts = rules.is_some_and(|rules| self.chain_accepts(rules, taken, depth + 1));
        self.accepting.borrow_mut().insert(key, accepts);
        accepts
    }

    /// Whether the rules of a chain accept all packets of a kind, and no earlier one has led some to its end:
    /// in a shared chain, to its policy.
    fn chain_accepts(&self, rules: &[LiveRule], taken: Taken, depth: usize) -> bool {
        let at = rules.iter().position(|rule| self.accepts(rule, taken, depth));
        let before = at.and_then(|at| rules.get(..at));
        before.is_some_and(|before| !before.iter().any(|rule| self.leads_to_the_end(rule, depth)))
    }

    fn leads_to_the_end(&self, rule: &LiveRule, depth: usize) -> bool {
        let leads = match rule.chain() {
            Some((name, true)) => !self.kinds.iter().all(|taken| self.named_accepts(name, *taken, depth)),
            Some(_) => false,
            None => *rule.effect() == Effect::Known(Target::Return),
        };
        leads && (self.may_match)(rule)
    }

    /// The target that keeps a captured packet from the proxy, if the rule has such a target, or jumps to a
    /// chain with one.
    fn drops(&mut self, rule: &LiveRule, depth: usize) -> Option<Targets> {
        if !(self.may_match)(rule) {
            return None;
        }
        if rule.effect().stops_packets() {
            return Some(Targets::of(rule.target()));
        }
        let (name, _) = rule.chain()?;
        let chains = self.chains;
        let rules = chains.get(name).filter(|_| self.seen.insert(name.to_owned()))?;
        if depth == DEEPEST {
            return Some(Targets::TooDeep(name.to_owned()));
        }
        let inner = self.met(rules, depth + 1).iter().find_map(|rule| self.drops(rule, depth + 1))?;
        Some(Targets::Chain(name.to_owned(), vec![inner]))
    }
}
