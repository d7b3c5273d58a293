//! Foreign rules of nat that give packets a loopback address which TPROXY has captured: TPROXY ends no table
//! but its own.

use std::collections::BTreeSet;

use super::{BaseChain, CapturedTraffic, DEEPEST, Examined, Place, Stage};
use crate::explain::Entry;
use crate::finding::{Finding, Problem};
use crate::live_rules::{Effect, Field, LiveRule, To, Translation, name_number};
use crate::model::{Family, Link};

use crate::text::one_line;

/// Warnings of foreign rules by which the kernel drops connections that TPROXY captures.
#[must_use]
pub fn find_translations_behind_tproxy(examined: &[Examined<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in examined {
        let mut captured = family.captured.clone();
        captured.dns = false;
        let of = family.family;
        let links: Vec<&Link> = family.links.iter().filter(|link| drops_loopback(of, link)).collect();
        let Some(link) = links.first().filter(|_| captured.keeps_port) else { continue };
        let name = one_line(&link.name);
        let Some(why) = link.refuses_loopback(of, &name) else { continue };
        let is_met = |base: &&BaseChain<'_>| base.stage == Stage::Prerouting && base.is_nat;
        for base in family.chains().iter().filter(is_met) {
            let mut search =
                Search { family, captured: &captured, links: &links, base, seen: BTreeSet::new() };
            for place in search.rules(base.chain, base.rules, 0) {
                let sentence = format!(
                    "a foreign rule applies to packets that TPROXY captures{place}: the kernel drops what arrives on {name} and gets a \
                     loopback address ({why})"
                );
                let advice = "; exempt the captured ports from the rule or delete it";
                let finding = Finding::new(Problem::ForeignRule, sentence).advice(advice).family(of);
                found.push(place.about(finding));
            }
        }
    }
    found
}

/// Whether the kernel drops what arrives there for a loopback address.
fn drops_loopback(family: Family, link: &Link) -> bool {
    link.is_up && !link.is_port && link.name != "lo" && link.refuses_loopback(family, &link.name).is_some()
}

struct Search<'a> {
    family: &'a Examined<'a>,
    captured: &'a CapturedTraffic,
    links: &'a [&'a Link],
    base: &'a BaseChain<'a>,
    seen: BTreeSet<&'a str>,
}

impl<'a> Search<'a> {
    /// The rules of a chain, and of those that it jumps to, that give captured packets a loopback address.
    fn rules(&mut self, chain: &str, rules: &'a [Entry], depth: usize) -> Vec<Place> {
        let mut found = Vec::new();
        for (_, entry) in self.family.foreign(self.base, rules) {
            let rule = &entry.rule;
            if !self.may_match(rule) {
                continue;
            }
            if let Some((name, rules)) = rule.chain().and_then(|(name, _)| self.base.named(name)) {
                if depth < DEEPEST && self.seen.insert(name) {
                    found.extend(self.rules(name, rules, depth + 1));
                }
            } else if is_to_loopback(&rule.effect()) {
                found.push(self.base.place(self.family.family, chain, rule));
            }
        }
        found
    }

    /// Whether it may match what TPROXY captures: what arrives on an interface other than lo.
    fn may_match(&self, rule: &LiveRule) -> bool {
        let names: Vec<u128> = self.links.iter().map(|link| name_number(link.name.as_bytes())).collect();
        let tests = rule.tests();
        let mut interfaces = tests.iter().filter(|test| test.field == Field::InInterface);
        interfaces.all(|test| test.holds_for_any(&names)) && self.captured.may_match(rule)
    }
}

/// Whether packets get a loopback address.
fn is_to_loopback(effect: &Effect) -> bool {
    matches!(effect, Effect::Translates(Translation { address: To::This(address), .. }) if address.is_loopback())
}
