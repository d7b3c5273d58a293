//! Compares the effect of two rule sets on every packet, class by class.

use super::field::{Class, Field, packets};
use super::program::{Program, Test};
use super::run::{Outcome, Verdict, run};
use super::set::Set;
use super::walker::{RuleNumber, TooManyClasses, Value, Walker, joined};
use super::witness::{UsualValues, Witness};
use crate::model::Family;

/// Packets of which two rule sets make something different.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) family: Family,
    /// The packets: all of one class.
    pub(super) class: Class,
    /// A packet of the class.
    pub(super) witness: Witness,
    pub(super) outcomes: [Outcome; 2],
}

/// A rule that cannot be evaluated and may decide about packets that the other rule set treats otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unproved {
    pub(super) family: Family,
    /// The number of the rule set.
    pub(super) side: usize,
    pub(super) rule: RuleNumber,
}

/// Of one family.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// One of each kind of outcomes; the one with the simplest packet first.
    pub(super) differences: Vec<Difference>,
    pub(super) unproved: Vec<Unproved>,
    /// The number of classes that were compared.
    pub(super) classes: usize,
}

/// Classes of packets of which two rule sets make, or may make, something different, each with both outcomes.
pub(super) type Differing = Vec<(Class, [Outcome; 2])>;

/// The classes of packets of one family, of those that pass all of these tests, that two rule sets treat
/// differently, and how many were compared.
pub(super) fn differing_classes(
    family: Family,
    [a, b]: [&Program; 2],
    tests: &[Test],
) -> Result<(Differing, usize), TooManyClasses> {
    if a == b {
        return Ok((Vec::new(), 1));
    }
    let [first, second] = [a, b].map(Program::routed);
    let start = packets(family, [&first, &second]).into_iter();
    let passing = |class: Class| tests.iter().fold(class, |class, test| class.with(test.field, &test.values));
    let start = start.map(passing).filter(|class| !class.is_empty());
    let start = start.map(|class| Walker::new(class, 0)).collect();
    // The classes of the first rule set walk the second one.
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut classes = Vec::new();
    for (walker, outcome) in run(family, a, start)? {
        let number = outcomes.iter().position(|known| *known == outcome).unwrap_or_else(|| {
            outcomes.push(outcome);
            outcomes.len() - 1
        });
        classes.push(Walker::new(walker.class, number));
    }
    let ended = run(family, b, joined(classes)?)?;
    let classes = ended.len();
    let differing = ended.into_iter().filter_map(|(walker, second)| {
        let first = outcomes.get(walker.tag)?;
        let class = differing(first, &second, walker.class)?;
        Some((class, [first.clone(), second]))
    });
    Ok((differing.collect(), classes))
}

/// Compares two rule sets for all packets of one family.
pub(super) fn compare(
    family: Family,
    sides: [&Program; 2],
    usual: &UsualValues,
) -> Result<Comparison, TooManyClasses> {
    let (differing, classes) = differing_classes(family, sides, &[])?;
    let mut comparison = Comparison { classes, ..Comparison::default() };
    for (class, outcomes) in differing {
        let unsure = outcomes.iter().map(|outcome| outcome.unsure).enumerate();
        let unsure: Vec<_> =
            unsure.filter_map(|(side, rule)| Some(Unproved { family, side, rule: rule? })).collect();
        if !unsure.is_empty() {
            for unsure in unsure {
                if !comparison.unproved.contains(&unsure) {
                    comparison.unproved.push(unsure);
                }
            }
            continue;
        }
        let witness = Witness::of(family, &class, usual);
        let difference = Difference { family, class, witness, outcomes };
        let known = comparison.differences.iter_mut().find(|known| known.outcomes == difference.outcomes);
        match known {
            Some(known) if known.witness.cost <= difference.witness.cost => {}
            Some(known) => *known = difference,
            None => comparison.differences.push(difference),
        }
    }
    // The simplest packet first.
    let simplest =
        comparison.differences.iter().enumerate().min_by_key(|(_, difference)| difference.witness.cost);
    if let Some((at, _)) = simplest {
        comparison.differences.swap(0, at);
    }
    Ok(comparison)
}

/// The packets of a class with which two outcomes are not the same.
fn differing(first: &Outcome, second: &Outcome, class: Class) -> Option<Class> {
    let apart = |outcome: &Outcome| (outcome.verdict.clone(), outcome.zone, outcome.is_untracked);
    if apart(first) != apart(second) {
        return Some(class);
    }
    if matches!(first.verdict, Verdict::Dropped | Verdict::TakenByForeignRule(_)) {
        return None;
    }
    [(first.mark, second.mark), (first.connmark, second.connmark)]
        .into_iter()
        .find_map(|(first, second)| with_other_value(first, second, &class))
}

/// The packets of a class for which two values are not the same.
fn with_other_value(first: Value, second: Value, class: &Class) -> Option<Class> {
    let not_empty = |class: Class| (!class.is_empty()).then_some(class);
    match (first, second) {
        (Value::Unknown, _) | (_, Value::Unknown) => Some(class.clone()),
        (Value::Constant(first), Value::Constant(second)) => (first != second).then(|| class.clone()),
        (Value::Of(field), Value::Constant(constant)) | (Value::Constant(constant), Value::Of(field)) => {
            not_empty(class.clone().with(field, &Set::one(constant).complement()))
        }
        (Value::Of(first), Value::Of(second)) if first == second => None,
        (Value::Of(first), Value::Of(second)) => {
            let fixed = |field: Field| {
                let other = if field == first { second } else { first };
                let value = Set::one(class.get(field).ranges().first()?.0);
                not_empty(class.clone().with(field, &value).with(other, &value.complement()))
            };
            fixed(first).or_else(|| fixed(second))
        }
    }
}
