//! Rules of iptables that captured packets meet on their way to the proxy: in INPUT, `filter` OUTPUT
//! and `mangle` and `nat` POSTROUTING.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::captured_traffic::{CapturedTraffic, Taken};
use super::{BaseChain, DEEPEST, Examined, Found, Placement, PrecedingRule, Stage, Targets};
use crate::explain::Entry;
use crate::live_rules::{Effect, Field, FieldMatch, LiveRule, name_number};
use crate::model::{Family, Target};
use crate::ordered::Ordered as _;

/// The ports with which captured packets come to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcceptedPorts {
    /// `the ports 15001, 15006`, for a hint.
    pub(super) words: String,
    /// `15001,15006`, if these are all: packets that TPROXY captures keep their port.
    pub(super) listed: Option<String>,
}

impl AcceptedPorts {
    pub(super) fn of<'a>(captured: impl IntoIterator<Item = &'a CapturedTraffic> + Clone) -> Self {
        let ports: BTreeSet<u16> = captured.clone().into_iter().flat_map(CapturedTraffic::ports).into_set();
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        if ports.is_empty() {
            return Self { words: "the captured ports".to_owned(), listed: None };
        }
        let are_all = !captured.into_iter().any(|captured| captured.keeps_port);
        Self { words: format!("the ports {}", ports.join(", ")), listed: are_all.then(|| ports.join(",")) }
    }
}

impl Examined<'_> {
    /// The rules and the policy of a chain of iptables behind ours that may decide.
    pub(super) fn later(&self, base: &BaseChain<'_>) -> Vec<PrecedingRule> {
        if base.stage == Stage::Forward {
            return Vec::new();
        }
        let is_output = base.stage.is_sent();
        let kinds: Vec<Taken> = self.captured.taken(is_output).collect();
        let may_match = |rule: &LiveRule| self.captured.may_match_taken(rule, is_output);
        let mut search = Search::new(&kinds, &may_match, (self, base));
        let mut found = Vec::new();
        for entry in search.met(base.rules, 0) {
            if let Some(target) = search.drops(&entry.rule, 0) {
                found.push((Found::rule(base.stage.chain(), &entry.rule), target));
            }
        }
        if base.drops && !(search.accept_all(base.rules) || search.drop_the_rest(base.rules, 0)) {
            found.push((Found::Policy(base.stage.chain()), Targets::of("DROP")));
        }
        let place = || Placement::Later(AcceptedPorts::of([&self.captured]));
        found.into_iter().filter_map(|(found, targets)| self.named(base, place(), found, targets)).collect()
    }
}

/// The search through rules that packets of some kinds meet.
pub(super) struct Search<'a> {
    kinds: &'a [Taken],
    /// Whether a rule may match packets of one of the kinds.
    may_match: &'a dyn Fn(&LiveRule) -> bool,
    base: &'a BaseChain<'a>,
    examined: &'a Examined<'a>,
    seen: BTreeSet<String>,
    /// Which chains accept all packets of which kind, as far as that is known: chains that many rules jump to
    /// are read once.
    accepting: RefCell<BTreeMap<(String, Taken), bool>>,
    /// Which chains drop what is left in them.
    dropping: RefCell<BTreeMap<String, bool>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        kinds: &'a [Taken],
        may_match: &'a dyn Fn(&LiveRule) -> bool,
        (examined, base): (&'a Examined<'a>, &'a BaseChain<'a>),
    ) -> Self {
        Self {
            kinds,
            may_match,
            base,
            examined,
            seen: BTreeSet::new(),
            accepting: RefCell::new(BTreeMap::new()),
            dropping: RefCell::new(BTreeMap::new()),
        }
    }

    /// Whether the rules of a base chain accept all packets of all kinds, so that none gets to its policy.
    pub(super) fn accept_all(&self, rules: &[Entry]) -> bool {
        self.kinds.iter().all(|taken| self.chain_accepts(rules, *taken, 0))
    }

    /// The rules up to the one behind which no packet of any kind is left.
    pub(super) fn met<'r>(&self, rules: &'r [Entry], depth: usize) -> &'r [Entry] {
        let is_end = |rule: &LiveRule, taken| self.accepts(rule, taken, depth) || self.drops_all(rule, depth);
        let end = |taken: &Taken| rules.iter().position(|entry| is_end(&entry.rule, *taken));
        let ends: Option<Vec<usize>> = self.kinds.iter().map(end).collect();
        let last = ends.and_then(|ends| ends.into_iter().max());
        last.and_then(|last| rules.get(..=last)).unwrap_or(rules)
    }

    /// The rules that may match packets of one of the kinds, in the base chain and in those that it jumps to.
    pub(super) fn all_met(&self) -> Vec<&'a Entry> {
        let mut found = Vec::new();
        let mut pending = vec![(self.base.rules, 0)];
        let mut seen = BTreeSet::new();
        while let Some((rules, depth)) = pending.pop() {
            for entry in self.met(rules, depth).iter().filter(|entry| (self.may_match)(&entry.rule)) {
                let next = entry.rule.chain().and_then(|(name, _)| self.base.named(name));
                let next = next.filter(|(name, _)| depth < DEEPEST && seen.insert(*name));
                pending.extend(next.map(|(_, rules)| (rules, depth + 1)));
                found.push(entry);
            }
        }
        found
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
        let rules = self.base.named(name).filter(|_| depth < DEEPEST);
        let drops = rules.is_some_and(|(_, rules)| self.drop_the_rest(rules, depth + 1));
        self.dropping.borrow_mut().insert(name.to_owned(), drops);
        drops
    }

    /// Whether one of these rules drops every packet, and no earlier one leads some to the end.
    pub(super) fn drop_the_rest(&self, rules: &[Entry], depth: usize) -> bool {
        let at = rules.iter().position(|entry| self.drops_all(&entry.rule, depth));
        let before = at.and_then(|at| rules.get(..at));
        before.is_some_and(|before| !before.iter().any(|entry| self.leads_to_the_end(&entry.rule, depth)))
    }

    /// Whether a rule accepts all packets of a kind, itself or by the chain that it jumps to.
    pub(super) fn accepts(&self, rule: &LiveRule, taken: Taken, depth: usize) -> bool {
        taken.all_match(rule) && self.hands_to_accept(rule, taken, depth)
    }

    /// Whether a rule accepts all that it matches.
    fn hands_to_accept(&self, rule: &LiveRule, taken: Taken, depth: usize) -> bool {
        match rule.chain() {
            Some((name, _)) => self.named_accepts(name, taken, depth),
            None => *rule.effect() == Effect::Known(Target::Accept),
        }
    }

    /// Whether the chain `name`, `depth` jumps deep, accepts all packets of a kind.
    fn named_accepts(&self, name: &str, taken: Taken, depth: usize) -> bool {
        let key = (name.to_owned(), taken);
        if let Some(known) = self.accepting.borrow().get(&key) {
            return *known;
        }
        let rules = self.base.named(name).filter(|_| depth < DEEPEST);
        let accepts = rules.is_some_and(|(_, rules)| self.chain_accepts(rules, taken, depth + 1));
        self.accepting.borrow_mut().insert(key, accepts);
        accepts
    }

    /// Whether the rules of a chain accept all packets of a kind, and no earlier one has led some to its end:
    /// in a shared chain, to its policy.
    fn chain_accepts(&self, rules: &[Entry], taken: Taken, depth: usize) -> bool {
        let mut parts = Vec::new();
        for entry in rules {
            let rule = &entry.rule;
            if self.accepts(rule, taken, depth) {
                return true;
            }
            let part = taken.open_test(rule).filter(|_| self.hands_to_accept(rule, taken, depth));
            if let Some(part) = part {
                parts.push(part);
                if self.are_all(&parts) {
                    return true;
                }
            }
            if self.leads_to_the_end(rule, depth) {
                return false;
            }
        }
        false
    }

    /// Whether one of these tests holds for each value of the field that the last one tests.
    fn are_all(&self, parts: &[FieldMatch]) -> bool {
        let Some(FieldMatch { field, .. }) = parts.last() else { return false };
        let alike = || parts.iter().filter(|test| test.field == *field && test.mask == u128::MAX);
        let is_address = matches!(field, Field::Source | Field::Destination);
        let most = match self.examined.family {
            Family::V4 if is_address => u32::MAX.into(),
            Family::V6 if is_address => u128::MAX,
            Family::V4 | Family::V6 => u16::MAX.into(),
        };
        // Between two of these values no test begins or ends.
        let borders = || {
            let behind = |(first, last): &(u128, u128)| [Some(*first), last.checked_add(1)];
            let borders = alike().flat_map(|test| &test.values).flat_map(behind).flatten();
            borders.chain([0]).filter(|value| *value <= most).collect::<Vec<_>>()
        };
        let is_end = is_address || matches!(field, Field::SourcePort | Field::DestinationPort);
        let values: Vec<u128> = if matches!(field, Field::InInterface | Field::OutInterface) {
            self.examined.links.iter().map(|link| name_number(link.name.as_bytes())).collect()
        } else if is_end {
            borders()
        } else {
            return false;
        };
        !values.is_empty() && values.iter().all(|value| alike().any(|test| test.holds_for_any(&[*value])))
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
        let (_, rules) = self.base.named(name).filter(|_| self.seen.insert(name.to_owned()))?;
        if depth == DEEPEST {
            return Some(Targets::TooDeep(name.to_owned()));
        }
        let inner = self.met(rules, depth + 1).iter().find_map(|entry| self.drops(&entry.rule, depth + 1))?;
        Some(Targets::Chain(name.to_owned(), vec![inner]))
    }
}
