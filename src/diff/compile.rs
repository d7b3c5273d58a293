//! Compiles rules, of options or as they were read from the kernel, into a [`Program`].

use super::conditions::tests_of;
use super::field::Field;
use super::program::{Action, BaseChain, Chain, Program, Rule, Test, joined};
use crate::explain::{self, Chains, Entry, Rules};
use crate::live_rules::Effect;
use crate::model::{Hook, Mark, NAT_PRIORITY, Table, Target};
use crate::ordered::Ordered as _;

/// The rules of one family.
pub(super) fn program(rules: &Rules) -> Program {
    let mut compiler = Compiler { program: Program::default(), bases: Vec::new() };
    rules.before.iter().for_each(|base| compiler.foreign(base));
    for (table, chains) in &rules.tables {
        compiler.table(*table, chains);
    }
    rules.later.iter().chain(&rules.forward).for_each(|base| compiler.foreign(base));
    compiler.program()
}

/// The tests of a rule that a packet passes or fails wherever it meets the rule: of fields that no action
/// writes.
pub(super) fn lasting_tests(entry: &Entry) -> Vec<Test> {
    let (mut tests, _) = tests_of(&entry.rule, entry.is_native);
    tests.retain(|test| match test.field {
        Field::Protocol
        | Field::Source
        | Field::Destination
        | Field::SourcePort
        | Field::DestinationPort
        | Field::Uid
        | Field::Gid => true,
        Field::Path
        | Field::InInterface
        | Field::OutInterface
        | Field::Mark
        | Field::Connmark
        | Field::State
        | Field::Syn => false,
    });
    tests
}

struct Compiler {
    program: Program,
    bases: Vec<(Place, BaseChain)>,
}

/// The hook of a base chain, the priority at which the kernel calls it, and its own priority.
type Place = (Hook, i32, i32);

impl Compiler {
    fn table(&mut self, table: Table, chains: &Chains) {
        let reader = self.named(table.name(), chains);
        for (hook, entries) in &chains.hooks {
            let chain = self.add(reader.chain(hook.name(), entries));
            let base = BaseChain { is_nat: table == Table::Nat, drops: chains.drops.contains(hook), chain };
            self.bases.push(((*hook, table.priority(), table.priority()), base));
        }
    }

    /// A base chain of another table. Chains that captured packets meet later or never are only compared as
    /// text.
    fn foreign(&mut self, base: &explain::BaseChain) {
        let Some(hook) = base.stage.hook() else {
            self.program.unwalked.extend(in_words(base));
            return;
        };
        let reader = self.named(&base.table, &base.chains);
        let chain = self.add(reader.chain(&base.chain, &base.rules));
        // The kernel calls all chains that translate destinations in one place.
        let called = if base.is_nat { NAT_PRIORITY } else { base.priority };
        let compiled = BaseChain { is_nat: base.is_nat, drops: base.drops, chain };
        self.bases.push(((hook, called, base.priority), compiled));
    }

    /// Adds the chains of a table that rules jump to.
    fn named<'a>(&mut self, table: &'a str, chains: &'a Chains) -> Reader<'a> {
        let reader = Reader { table, chains, first: self.program.chains.len() };
        for (name, entries) in &chains.named {
            self.add(reader.chain(name, entries));
        }
        reader
    }

    fn add(&mut self, chain: Chain) -> usize {
        self.program.chains.push(chain);
        self.program.chains.len() - 1
    }

    fn program(self) -> Program {
        let Self { mut program, bases } = self;
        let bases = bases.into_iter().into_sorted_by_key(|(place, _)| *place);
        let chain = |base: &BaseChain| program.chains.get(base.chain);
        let decides =
            |base: &BaseChain| base.drops || chain(base).is_some_and(|chain| !chain.rules.is_empty());
        let deciding: Vec<_> = bases.iter().filter(|(_, base)| decides(base)).collect();
        let equal = deciding.windows(2).filter_map(|pair| match pair {
            [(one, first), (other, second)] if one == other => {
                let [first, second] = [chain(first)?, chain(second)?].map(|chain| chain.name.as_str());
                Some(format!(
                    "{first} and {second} have the same priority: the kernel does not list their order"
                ))
            }
            _ => None,
        });
        let equal: Vec<_> = equal.collect();
        program.has_open_order = !equal.is_empty();
        program.unwalked.extend(equal);
        program.bases = bases.into_iter().map(|((hook, ..), base)| (hook, base)).collect();
        let targets =
            program.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| rule.actions.windows(2));
        program.routed_marks = targets.filter_map(routed_mark).collect();
        program
    }
}

/// Whether a rule sets a zone that one number does not describe.
fn has_unknown_zone(effect: &Effect) -> bool {
    matches!(effect, Effect::SetsZone(zone) if zone.is_none_or(|zone| zone.original != zone.reply))
}

/// The mark that comes with TPROXY: policy routing sends it to `lo`.
fn routed_mark(pair: &[Action]) -> Option<u32> {
    match pair {
        [Action::Set(Field::Mark, mark), Action::Tproxy(_)]
        | [Action::Tproxy(_), Action::Set(Field::Mark, mark)] => u32::try_from(*mark).ok(),
        _ => None,
    }
}

/// The rules of a chain that is not walked, of those that it jumps to, and its policy.
fn in_words(base: &explain::BaseChain) -> Vec<String> {
    let named = &base.chains.named;
    let mut chains = vec![(base.chain.as_str(), &base.rules)];
    let mut at = 0;
    while let Some((_, rules)) = chains.get(at).copied() {
        for (name, _) in rules.iter().filter_map(|rule| rule.rule.chain()) {
            if let Some((name, rules)) = named.get_key_value(name)
                && !chains.iter().any(|(known, _)| known == name)
            {
                chains.push((name, rules));
            }
        }
        at += 1;
    }
    let rules = chains.into_iter().flat_map(|(chain, rules)| {
        rules.iter().map(move |rule| unwalked(&format!("{} {chain} {}", base.table, rule.rule.words())))
    });
    let policy = base.drops.then(|| format!("{} {} has the policy DROP", base.table, base.chain));
    rules.chain(policy).collect()
}

fn unwalked(rule: &str) -> String {
    format!("{rule} (its chain is not evaluated)")
}

struct Reader<'a> {
    table: &'a str,
    chains: &'a Chains,
    /// The number of the first chain that has a name.
    first: usize,
}

impl Reader<'_> {
    fn chain(&self, name: &str, entries: &[Entry]) -> Chain {
        let rules = entries.iter().filter_map(|entry| self.rule(entry)).collect();
        let rules = joined(rules, |chain| self.is_pure(chain));
        Chain { name: format!("{} {name}", self.table), rules }
    }

    /// Whether a chain does nothing but decide.
    fn is_pure(&self, number: usize) -> bool {
        let decides = |entry: &Entry| {
            matches!(
                entry.statement().map(|statement| statement.target),
                Some(
                    Target::Accept
                        | Target::Drop
                        | Target::Redirect(_)
                        | Target::Return
                        | Target::Tproxy { .. }
                )
            )
        };
        let entries = number.checked_sub(self.first).and_then(|at| self.chains.named.values().nth(at));
        entries.is_some_and(|entries| entries.iter().all(decides))
    }

    /// The rule; `None` if it does nothing.
    fn rule(&self, entry: &Entry) -> Option<Rule> {
        let (tests, mut is_unknown) = tests_of(&entry.rule, entry.is_native);
        let actions = self.actions(entry);
        is_unknown |= has_unknown_zone(&entry.rule.effect());
        let words = || entry.rule.words().into_owned();
        (!actions.is_empty()).then(|| Rule::new(tests, is_unknown, actions, words(), entry.why))
    }

    fn actions(&self, entry: &Entry) -> Vec<Action> {
        let effect = entry.rule.effect().into_owned();
        let words = || entry.rule.target_words();
        let number = |name: &str| self.chains.named.keys().position(|known| known == name);
        let chain = |name: &str| number(name).map(|at| self.first + at);
        match effect {
            Effect::Continues => Vec::new(),
            Effect::SetsZone(zone) => vec![Action::Zone(zone.unwrap_or_default().original)],
            Effect::GivesSocket(..)
            | Effect::Queues { .. }
            | Effect::Rejects
            | Effect::RewritesEnds
            | Effect::Takes
            | Effect::ToSocket { .. }
            | Effect::Translates(_)
            | Effect::TranslatesSource => {
                vec![Action::Take(words())]
            }
            Effect::Marks | Effect::ChangesMark(_) => {
                vec![Action::Obscure(Field::Mark), Action::Obscure(Field::Connmark)]
            }
            Effect::Untracks => vec![Action::Untrack],
            // A chain without rules is left at once.
            Effect::Chain { name, is_goto } => match (chain(&name), is_goto) {
                (Some(chain), false) => vec![Action::Jump(chain)],
                (Some(chain), true) => vec![Action::Goto(chain)],
                (None, false) => Vec::new(),
                (None, true) => vec![Action::Return],
            },
            Effect::Known(target) => match target {
                Target::Accept => vec![Action::Accept],
                Target::ConntrackZone(zone) => vec![Action::Zone(zone)],
                Target::Drop => vec![Action::Drop],
                Target::Jump(name) => chain(name.name()).map(Action::Jump).into_iter().collect(),
                Target::Redirect(port) => vec![Action::Redirect(port.number())],
                Target::RestoreMark => vec![Action::Copy(Field::Mark, Field::Connmark)],
                Target::Return => vec![Action::Return],
                Target::SaveMark => vec![Action::Copy(Field::Connmark, Field::Mark)],
                Target::SetMark(Mark(mark)) => vec![Action::Set(Field::Mark, mark.into())],
                Target::Tproxy { port, mark: Mark(mark) } => {
                    vec![Action::Set(Field::Mark, mark.into()), Action::Tproxy(port.number()), Action::Accept]
                }
            },
        }
    }
}
