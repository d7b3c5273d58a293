//! `diff`: whether two rule sets treat every packet alike.
//!
//! The constants of both rule sets split each field of a packet into finitely many classes of values that no
//! rule distinguishes. Each class of packets (a set of values for each field) goes through the first rule
//! set, is split where a rule matches a part of it, and goes through the second one. If the outcomes never
//! differ, that is a proof for all packets; otherwise a packet of the class is an example.

mod compile;
mod conditions;
mod difference;
mod field;
mod harm;
mod json;
mod program;
mod reason;
mod run;
mod saved;
mod set;
mod text;
mod walker;
mod witness;

use std::net::IpAddr;

use crate::config::Output;
use crate::explain::{ForeignRule, Rules};
use crate::model::{Family, Network, PerFamily, Variant};
use crate::parse::Observed;

use difference::{Comparison, compare};
use program::Program;
use witness::UsualValues;

pub use saved::by_family;

/// One of the two rule sets.
#[derive(Clone, Debug)]
pub struct Side {
    /// What it was called on the command line.
    pub name: String,
    /// The command line of `explain` that follows a packet through it, without the packet; `None` if
    /// `explain` cannot.
    pub explain: Option<Vec<String>>,
    programs: PerFamily<Program>,
}

impl Side {
    /// A rule set without any rules.
    #[must_use]
    pub const fn new(name: String) -> Self {
        Self { name, explain: None, programs: PerFamily::new() }
    }

    /// With the rules of a family.
    #[must_use]
    pub fn rules(mut self, family: Family, rules: &Rules) -> Self {
        self.programs.insert(family, compile::program(rules));
        self
    }

    /// With the rules of a family, as `iptables-save` prints them.
    #[must_use]
    pub fn saved(self, observed: &Observed) -> Self {
        let mut rules = Rules::live(observed);
        rules.add_iptables(observed, Variant::Nft, true);
        self.rules(observed.family, &rules)
    }

    /// With what may decide besides, and is not walked.
    #[must_use]
    pub fn besides(mut self, notices: &[String]) -> Self {
        for family in Family::ALL {
            self.unwalked(family, notices);
        }
        self
    }

    /// With what may decide besides in one family, and is not walked.
    #[must_use]
    pub fn besides_of(mut self, family: Family, notices: &[String]) -> Self {
        self.unwalked(family, notices);
        self
    }

    fn unwalked(&mut self, family: Family, rules: &[String]) {
        for (_, program) in self.programs.iter_mut().filter(|(known, _)| **known == family) {
            program.unwalked.extend(rules.iter().cloned());
        }
    }
}

/// Whether a rule set does with every connection that our rules capture, and with those that the proxy then
/// makes, what it does without a rule of another program in nat. `false` if that cannot be proved. `own` are
/// the addresses of the pod; none if they are not known.
#[must_use]
pub fn is_harmless(family: Family, with: &Rules, rule: &ForeignRule, own: &[IpAddr]) -> bool {
    let Some((without, entry)) = with.without(rule) else { return false };
    // Other packets meet the same rules with it as without.
    let met = compile::lasting_tests(&entry);
    let [with, without] = [with, &without].map(compile::program);
    harm::changes_capture(family, [&without, &with], &met, own) == Ok(false)
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// A packet is treated otherwise.
    Different,
    /// Every packet is treated alike.
    Equal,
    /// Equality is not proved: a rule cannot be evaluated.
    NotProved,
}

/// The comparison of two rule sets.
#[derive(Debug)]
struct Compared<'a> {
    sides: &'a [Side; 2],
    /// Of each family that both sides know.
    families: PerFamily<Comparison>,
    /// Families that one side does not know.
    unknown: Vec<(Family, usize)>,
    /// Why nothing is proved, apart from rules of classes that differ.
    obstacles: Vec<String>,
}

impl Compared<'_> {
    fn conclusion(&self) -> Conclusion {
        let any = |has: fn(&Comparison) -> bool| self.families.values().any(has);
        if any(|comparison| !comparison.differences.is_empty()) {
            Conclusion::Different
        } else if !self.obstacles.is_empty() || any(|comparison| !comparison.unproved.is_empty()) {
            Conclusion::NotProved
        } else {
            Conclusion::Equal
        }
    }
}

/// Compares two rule sets; `network` is where the example packets come from. Returns the report as it is
/// printed.
#[must_use]
pub fn report(sides: &[Side; 2], network: &Network, output: Output) -> (String, Conclusion) {
    let compared = compared(sides, network);
    let text = match output {
        Output::Text => text::text(&compared),
        Output::Json => json::json(&compared),
    };
    (text, compared.conclusion())
}

fn compared<'a>(sides: &'a [Side; 2], network: &Network) -> Compared<'a> {
    let usual = UsualValues::of(network);
    let [a, b] = sides;
    let mut found =
        Compared { sides, families: PerFamily::new(), unknown: Vec::new(), obstacles: Vec::new() };
    for family in Family::ALL {
        let (Some(first), Some(second)) = (a.programs.get(&family), b.programs.get(&family)) else {
            let unknown = sides.iter().position(|side| !side.programs.contains_key(&family));
            found.unknown.extend(unknown.map(|number| (family, number)));
            continue;
        };
        found.obstacles.extend(unwalked(sides, [first, second]));
        match compare(family, [first, second], &usual) {
            Ok(comparison) => drop(found.families.insert(family, comparison)),
            Err(walker::TooManyClasses) => {
                found.obstacles.push(format!("the rules of {family} split packets into too many classes"));
            }
        }
    }
    found
}

/// Rules that one side alone has in chains that are not walked.
fn unwalked(sides: &[Side; 2], programs: [&Program; 2]) -> Vec<String> {
    let [first, second] = programs;
    if first.unwalked == second.unwalked {
        return Vec::new();
    }
    let [a, b] = sides;
    let only = |side: &Side, own: &Program, other: &Program| -> Vec<String> {
        let missing = own.unwalked.iter().filter(|rule| !other.unwalked.contains(*rule));
        missing.map(|rule| format!("{}: {rule}", side.name)).collect()
    };
    let mut rules = only(a, first, second);
    rules.extend(only(b, second, first));
    if rules.is_empty() {
        rules.push("rules of chains that are not walked are in another order".to_owned());
    }
    rules
}
