//! What holds when rules move from one iptables variant to the other, with whatever options, stopped
//! anywhere.

use std::collections::BTreeMap;

use istio_iptables::config::{CaptureConfig, InboundPorts, Mode, Traffic};
use istio_iptables::connections::conntrack;
use istio_iptables::model::{Families, Family, NATIVE_TABLES, Variant};
use istio_iptables::parse::Observed;
use istio_iptables::plan::{CurrentState, DesiredState, Restore, Step, kept_rules, plan};
use istio_iptables::reconcile::Change;
use istio_iptables::record::Record;
use istio_iptables::{nft, parse, policy, render, routing};
use nfnetlink::nftables::{self, Table, TableName};
use proptest::prelude::*;

use super::configs::config;
use super::convergence::FOREIGN;
use super::tables::Tables;

/// The mark rules that another rule set must not see: they store marks from every interface.
const SAVES_EVERYWHERE: &str = "-p tcp -m mark --mark";

/// The tables of the two variants, and the alias of `lo`.
#[derive(Clone, Debug, Default)]
struct Namespace(BTreeMap<(Variant, Family), Tables>, Option<String>);

impl Namespace {
    /// With these rules in one variant, behind foreign ones in both.
    fn holding(config: &CaptureConfig, variant: Variant) -> Self {
        let mut namespace = Self::default();
        for family in Family::ALL {
            for variant in Variant::ALL {
                namespace.0.entry((variant, family)).or_default().restore(FOREIGN);
            }
        }
        namespace.fill(config, variant);
        namespace
    }

    fn fill(&mut self, config: &CaptureConfig, variant: Variant) {
        let rules = Family::ALL.map(|family| policy::ruleset(config).resolve(family));
        let changes = rules.clone().map(|rules| {
            let tables = self.0.entry((variant, rules.family)).or_default();
            let change = Change::between(&rules, &parse::iptables_save(rules.family, &tables.save()), false);
            tables.restore(&render::restore(&change));
            change
        });
        let record = Record::of(&rules, &changes, false, variant);
        let earlier: Option<Record> = self.1.as_ref().map(|alias| alias.parse().unwrap());
        self.1 = Some(earlier.map_or_else(|| record.clone(), |earlier| earlier.and(&record)).alias());
    }

    fn current(&self, variant: Variant) -> CurrentState {
        let record = self.1.as_ref().and_then(|alias| alias.parse().ok());
        let observed = self.0.iter().map(|(key, tables)| {
            let record: Option<Record> = record.clone();
            let may_be_left = record.as_ref().is_some_and(|record| record.may_have_left(key.0, key.1));
            let record = record.and_then(|record| record.of_variant(key.0));
            (may_be_left, *key, Observed { record, ..parse::iptables_save(key.1, &tables.save()) })
        });
        let is_read = |(may_be_left, key, observed): &(bool, (Variant, Family), Observed)| {
            key.0 == variant || observed.has_ours() || *may_be_left
        };
        let rules = observed.filter(is_read).map(|(_, key, observed)| (key, observed)).collect();
        CurrentState { rules, alias: self.1.clone(), ..CurrentState::empty(variant.into()) }
    }

    fn steps(&self, desired: &DesiredState, variant: Variant) -> Vec<Step> {
        plan(desired, &self.current(variant))
    }

    /// Where identical foreign rules leave it open which rules are ours, those stay, and are named.
    fn names(&self, desired: &DesiredState, variant: Variant) -> Vec<String> {
        let notices = kept_rules(desired, &self.current(variant));
        let kept = notices.into_iter().map(|notice| notice.to_string());
        kept.filter(|sentence| sentence.contains("kept (ours or foreign)")).collect()
    }

    /// The rules that are not in `expected`, as they are named; `None` if one of those is missing.
    fn additional(&self, expected: &Self) -> Option<Vec<String>> {
        let (mut found, mut additional) = (self.contents(), Vec::new());
        for (key, rules) in expected.contents() {
            let found = found.get_mut(&key)?;
            for rule in rules {
                found.remove(found.iter().position(|other| *other == rule)?);
            }
        }
        for ((_, _, table, chain), rules) in found {
            additional.extend(rules.iter().map(|rule| format!("`{table} {chain} {rule}`")));
        }
        Some(additional)
    }

    /// One state per commit: each table of each rules file.
    fn states(&self, steps: &[Step]) -> Vec<Self> {
        let mut states = vec![self.clone()];
        for step in steps {
            let before = states.last().unwrap().clone();
            if let Step::Record(alias) = step {
                states.push(Self(before.0.clone(), Some(alias.clone()).filter(|alias| !alias.is_empty())));
            }
            let Step::Restore(restore) = step else { continue };
            for commits in 1..=restore.change.tables.len() {
                let mut after = before.clone();
                let tables = after.0.entry((restore.variant, restore.family())).or_default();
                tables.restore_tables(&restore.text(), commits);
                states.push(after);
            }
        }
        states
    }

    /// In no family does one set store marks from every interface while the other one marks packets.
    fn is_safe(&self) -> bool {
        let rules = |variant, family, chain: &str| -> Vec<String> {
            let tables = self.0.get(&(variant, family)).map(Tables::contents).unwrap_or_default();
            tables.get(&("mangle".to_owned(), chain.to_owned())).cloned().unwrap_or_default()
        };
        let stores = |variant, family| {
            let saves = |rule: &String| rule.starts_with(SAVES_EVERYWHERE) && rule.contains("--save-mark");
            rules(variant, family, "PREROUTING").iter().any(saves)
        };
        let marks = |variant, family| {
            rules(variant, family, "PREROUTING").iter().any(|rule| rule.contains("-j ISTIO_INBOUND"))
        };
        Family::ALL.into_iter().all(|family| {
            Variant::ALL
                .into_iter()
                .all(|variant| !(stores(variant, family) && marks(variant.other(), family)))
        })
    }

    fn contents(&self) -> BTreeMap<(Variant, Family, String, String), Vec<String>> {
        let all = self.0.iter().flat_map(|((variant, family), tables)| {
            let contents = tables.contents().into_iter();
            contents.map(|((table, chain), rules)| ((*variant, *family, table, chain), rules))
        });
        all.collect()
    }
}

fn desired(config: &CaptureConfig) -> DesiredState {
    let rules = policy::ruleset(config);
    DesiredState {
        rules: Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect(),
        network: routing::Desired::default(),
        rewrite: false,
        config: None,
    }
}

/// Half of the moves are from TPROXY to TPROXY with the same mark.
fn pair() -> impl Strategy<Value = (CaptureConfig, CaptureConfig)> {
    (config(), config(), any::<bool>()).prop_map(|(old, new, same)| {
        let inbound = if old.traffic.inbound == InboundPorts::None {
            new.traffic.inbound.clone()
        } else {
            old.traffic.inbound.clone()
        };
        match (same, old.traffic.mode, new.traffic.mode) {
            (true, tproxy @ Mode::Tproxy(_), _) | (true, _, tproxy @ Mode::Tproxy(_)) => {
                let both = |config: CaptureConfig| {
                    let traffic = Traffic { mode: tproxy, ..config.traffic };
                    CaptureConfig { families: Families::Both, traffic, ..config }
                };
                let mut old = both(old);
                old.traffic.inbound = inbound;
                (old, both(new))
            }
            _ => (old, new),
        }
    })
}

fn variants() -> impl Strategy<Value = Variant> {
    prop::sample::select(Variant::ALL.to_vec())
}

proptest! {
    #[test]
    fn backend_move_is_safe_after_every_commit_and_can_be_resumed_or_reverted(
        (old, new) in pair(), from in variants(), stopped in any::<prop::sample::Index>(), back in any::<bool>()
    ) {
        let start = Namespace::holding(&old, from);
        let states = start.states(&start.steps(&desired(&new), from.other()));
        for (commits, state) in states.iter().enumerate() {
            prop_assert!(state.is_safe(), "after {commits} commits of the move: {state:#?}");
        }
        let state = stopped.get(&states);
        let (config, variant) = if back { (&old, from) } else { (&new, from.other()) };
        let resumed = state.states(&state.steps(&desired(config), variant));
        for later in &resumed {
            prop_assert!(later.is_safe(), "stopped, then run again: {later:#?}");
        }
        let end = resumed.last().unwrap();
        let expected = Namespace::holding(config, variant);
        let named = state.names(&desired(config), variant);
        if named.is_empty() {
            prop_assert_eq!(end.contents(), expected.contents());
        }
        let additional = end.additional(&expected);
        let is_named = |rule: &String| named.iter().any(|notice| notice.contains(rule));
        prop_assert!(additional.iter().flatten().all(is_named) && additional.is_some(), "{:?}", additional);
        prop_assert!(end.steps(&desired(config), variant).is_empty());
    }

    /// Rules for which the record had no room (`?`) still exist, and no other data names them.
    #[test]
    fn a_record_without_room_for_all_rules_keeps_saying_so(config in config(), variant in variants()) {
        let mut namespace = Namespace::holding(&config, variant);
        let letter = match variant {
            Variant::Legacy => " l",
            Variant::Nft => " n",
        };
        namespace.1 = namespace.1.map(|alias| alias.replacen(letter, &format!("{letter}?"), 1));
        let states = namespace.states(&namespace.steps(&desired(&config), variant));
        let end = states.last().unwrap();
        let record: Record = end.1.as_ref().unwrap().parse().unwrap();
        prop_assert!(record.is_incomplete(), "{:?}", end.1);
        prop_assert_eq!(end.steps(&desired(&config), variant), vec![]);
    }

    #[test]
    fn two_sets_of_an_earlier_version_are_limited_before_anything_else(
        (old, new) in pair(), from in variants()
    ) {
        // That version recorded nothing: the lone RETURN of a virtual interface would stay.
        let (mut old, mut new) = (old, new);
        old.traffic.virtual_interfaces.clear();
        new.traffic.virtual_interfaces.clear();
        let mut both = Namespace::holding(&old, from);
        both.fill(&new, from.other());
        both.1 = None;
        let states = both.states(&both.steps(&desired(&new), from.other()));
        // A run that is killed before the marks are cleared has something to change the next time, and clears
        // them then.
        let steps = both.steps(&desired(&new), from.other());
        let last = steps.iter().rposition(|step| matches!(step, Step::Restore(_)));
        for family in Family::ALL {
            let clears = |step: &Step| {
                matches!(step, Step::Conntrack(conntrack::Step::ClearForeignMark(of, _)) if *of == family)
            };
            let limits = |step: &Step| {
                let restore = |restore: &Restore| restore.family() == family && restore.text().contains("-i lo -p tcp -m mark --mark");
                matches!(step, Step::Restore(step) if step.variant == from.other() && restore(step))
            };
            let cleared = steps.iter().position(clears);
            prop_assert!(cleared < last && cleared.is_some() || !steps.iter().any(limits), "{:?}", steps);
        }
        // The record, and for two families one commit each to limit what leaves, and one each for what stays.
        for (commits, state) in states.iter().enumerate().skip(5) {
            prop_assert!(state.is_safe(), "after {commits} commits: {state:#?}");
        }
        let expected = Namespace::holding(&new, from.other());
        prop_assert_eq!(states.last().unwrap().contents(), expected.contents());
    }

    #[test]
    fn tables_of_native_nftables_are_limited_first_and_leave_before_the_final_form(
        config in config(), variant in variants()
    ) {
        let table = |name: &str| Table::new(TableName::new(nftables::Family::Inet, name));
        let native = nft::LiveTables::new(NATIVE_TABLES.map(table).to_vec(), Vec::new());
        let network = routing::Observed::default();
        let current = CurrentState { native, network, ..CurrentState::empty(variant.into()) };
        let steps = plan(&desired(&config), &current);
        let position = |wanted: &dyn Fn(&Step) -> bool| steps.iter().position(wanted);
        let saves = |step: &Step, words: &str| matches!(step, Step::Restore(restore) if restore.text().contains(words));
        let limit = position(&|step| *step == Step::LimitNative);
        let limited = position(&|step| saves(step, "-A PREROUTING -i lo -p tcp -m mark --mark"));
        let delete = position(&|step| matches!(step, Step::DeleteNative(_)));
        let last = position(&|step| saves(step, "-A PREROUTING -p tcp -m mark --mark"));
        if matches!(config.traffic.mode, Mode::Tproxy(_)) {
            prop_assert!(limit.is_some() && limit < limited && limited < delete && delete < last, "{:?}", steps);
        } else {
            prop_assert_eq!((limit, limited, last), (None, None, None));
        }
    }

    /// But one: mangle of TPROXY before nat lets go of what it redirects, with a wait for the packets in
    /// between.
    #[test]
    fn without_a_move_no_step_is_added((old, new) in pair(), variant in variants()) {
        let is_tproxy = |config: &CaptureConfig| matches!(config.traffic.mode, Mode::Tproxy(_));
        let has_tproxy = |config: &CaptureConfig| is_tproxy(config) && config.traffic.inbound != InboundPorts::None;
        for start in [Namespace::default(), Namespace::holding(&old, variant)] {
            let may_take_over = start.1.is_some() && has_tproxy(&new) && !has_tproxy(&old);
            let steps = start.steps(&desired(&new), variant);
            let count = |is: fn(&Step) -> bool| steps.iter().filter(|step| is(step)).count();
            let processes = count(|step| matches!(step, Step::Restore(_)));
            let waits = count(|step| *step == Step::AwaitPackets);
            prop_assert!(waits <= usize::from(may_take_over), "{:?}", steps);
            prop_assert!(processes <= 2 * (1 + waits), "one process per family, and one before the wait: {:?}", steps);
            let record = count(|step| matches!(step, Step::Record(_)));
            prop_assert!(start.1.is_some() || steps.len() == processes + record, "{:?}", steps);
        }
    }
}
