//! Rules in the form in which classes of packets walk them, whatever they were read from.

use super::field::Field;
use super::set::{Range, Set};
use crate::model::{Hook, Why};

/// The rules of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    /// The base chains with their hooks; those of one hook in the order in which a packet meets them.
    pub(super) bases: Vec<(Hook, BaseChain)>,
    pub(super) chains: Vec<Chain>,
    /// Rules of chains that are not walked, each with its table and chain.
    pub(super) unwalked: Vec<String>,
    /// Whether two base chains have the same priority: the kernel does not list their order.
    pub(super) has_open_order: bool,
    /// The marks that policy routing sends to `lo`.
    pub(super) routed_marks: Vec<u32>,
}

impl Program {
    /// The marks that policy routing sends to `lo`, as a set.
    pub(super) fn routed(&self) -> Set {
        Set::of(self.routed_marks.iter().map(|mark| ((*mark).into(), (*mark).into())).collect())
    }
}

/// A chain that the kernel calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BaseChain {
    /// Whether it meets the first packet of a connection only.
    pub(super) is_nat: bool,
    pub(super) drops: bool,
    /// The index of the chain.
    pub(super) chain: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// Table and chain.
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
}

/// A rule, or several in a row that differ in the values of one field only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) tests: Vec<Test>,
    /// Whether it has a test that cannot be evaluated.
    pub(super) is_unknown: bool,
    pub(super) actions: Vec<Action>,
    /// The rules as they were read.
    pub(super) parts: Vec<Part>,
    /// The number of the test in which the parts differ.
    varies: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) why: Option<Why>,
    ranges: Vec<Range>,
}

/// A field has one of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) field: Field,
    pub(super) values: Set,
    pub(super) others: Set,
}

impl Test {
    pub(super) fn new(field: Field, values: Set, is_negated: bool) -> Self {
        let others = values.complement();
        if is_negated {
            Self { field, values: others, others: values }
        } else {
            Self { field, values, others }
        }
    }
}

/// What a rule does, one thing after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Accept,
    /// The first field gets the value that the second one has.
    Copy(Field, Field),
    Drop,
    Goto(usize),
    Jump(usize),
    /// A mark gets a value that is not known.
    Obscure(Field),
    Redirect(u16),
    Return,
    Set(Field, u128),
    /// The packet is taken away, by these words.
    Take(String),
    Tproxy(u16),
    Untrack,
    Zone(u16),
}

impl Rule {
    pub(super) fn new(
        tests: Vec<Test>,
        is_unknown: bool,
        actions: Vec<Action>,
        text: String,
        why: Option<Why>,
    ) -> Self {
        Self { tests, is_unknown, actions, parts: vec![Part { text, why, ranges: Vec::new() }], varies: None }
    }

    /// The rule that is meant for a packet whose fields have these values.
    pub(super) fn part(&self, value: impl Fn(Field) -> u128) -> Option<&Part> {
        let first = || self.parts.first();
        let Some(test) = self.varies.and_then(|varies| self.tests.get(varies)) else { return first() };
        let value = value(test.field);
        let holds = |part: &&Part| part.ranges.iter().any(|(from, to)| (*from..=*to).contains(&value));
        self.parts.iter().find(holds).or_else(first)
    }

    /// Whether a second rule with the same actions behind it changes nothing for a packet that both match: it
    /// did not get there, or what is done twice is the same as once.
    fn may_join(&self, is_pure: impl Fn(usize) -> bool) -> bool {
        self.actions.iter().all(|action| match action {
            Action::Accept | Action::Drop | Action::Goto(_) | Action::Redirect(_) | Action::Return => true,
            Action::Set(..) | Action::Take(_) | Action::Tproxy(_) | Action::Zone(_) => true,
            Action::Jump(chain) => is_pure(*chain),
            Action::Copy(..) | Action::Obscure(_) | Action::Untrack => false,
        })
    }

    /// The number of the only test in which the other rule differs.
    fn differing(&self, other: &Self) -> Option<usize> {
        let is_alike = !self.is_unknown
            && !other.is_unknown
            && self.actions == other.actions
            && self.tests.len() == other.tests.len()
            && self.tests.iter().zip(&other.tests).all(|(one, other)| one.field == other.field);
        if !is_alike {
            return None;
        }
        let mut differing = self
            .tests
            .iter()
            .zip(&other.tests)
            .enumerate()
            .filter(|(_, (one, other))| one.values != other.values);
        let at = differing.next().map(|(at, _)| at);
        at.filter(|_| differing.next().is_none())
    }
}

/// Joins rules in a row that differ in one field and do the same: ranges of one verdict become one set.
pub(super) fn joined(rules: Vec<Rule>, is_pure: impl Fn(usize) -> bool) -> Vec<Rule> {
    let mut joined: Vec<Rule> = Vec::new();
    for mut rule in rules {
        if let Some(last) = joined.last_mut()
            && last.may_join(&is_pure)
            && let Some(at) = differing_part(last, &rule)
        {
            let ranges = |rule: &Rule| {
                rule.tests.get(at).map(|test| test.values.ranges().to_vec()).unwrap_or_default()
            };
            if last.varies.is_none() {
                let own = ranges(last);
                last.parts.iter_mut().for_each(|part| part.ranges.clone_from(&own));
                last.varies = Some(at);
            }
            let own = ranges(&rule);
            rule.parts.iter_mut().for_each(|part| part.ranges.clone_from(&own));
            last.parts.append(&mut rule.parts);
            continue;
        }
        close(joined.last_mut());
        joined.push(rule);
    }
    close(joined.last_mut());
    joined
}

/// The test in which a rule differs from those that are joined already: always the same one.
fn differing_part(last: &Rule, rule: &Rule) -> Option<usize> {
    let at = last.differing(rule)?;
    last.varies.is_none_or(|varies| varies == at).then_some(at)
}

/// Gives a joined rule the values of all its parts.
fn close(rule: Option<&mut Rule>) {
    let Some((rule, at)) = rule.and_then(|rule| rule.varies.map(|at| (rule, at))) else { return };
    let ranges = rule.parts.iter().flat_map(|part| part.ranges.iter().copied()).collect();
    if let Some(test) = rule.tests.get_mut(at) {
        *test = Test::new(test.field, Set::of(ranges), false);
    }
}
