//! Foreign rules of nat that give packets a loopback address which TPROXY has captured: TPROXY ends no table
//! but its own.

use std::collections::BTreeSet;

use nfnetlink::nftables::Table;

use super::captured_traffic::CapturedTraffic;
use super::overwritten::Network;
use super::overwritten::chains::{BaseChain, Place, base_chains};
use super::overwritten::mark_paths::Stage;
use super::{DEEPEST, IptablesRules};
use crate::finding::{Finding, Problem};
use crate::live_rules::{Effect, Field, LiveRule, To, Translation, name_number};
use crate::model::{Backend, Family, FamilyRules, Link, PerFamily};

use crate::text::one_line;

/// Warnings of foreign rules by which the kernel drops connections that TPROXY captures.
#[must_use]
pub fn find_translations_behind_tproxy(
    desired: &PerFamily<FamilyRules>,
    backend: Backend,
    live: IptablesRules<'_>,
    network: Network<'_>,
    tables: &[Table],
) -> Vec<Finding> {
    let mut found = Vec::new();
    for (family, rules) in desired {
        let mut captured = CapturedTraffic::of(rules);
        captured.dns = false;
        let links: Vec<&Link> = network.links.iter().filter(|link| drops_loopback(*family, link)).collect();
        let Some(link) = links.first().filter(|_| captured.keeps_port) else { continue };
        let name = one_line(&link.name);
        let Some(why) = link.refuses_loopback(*family, &name) else { continue };
        for base in base_chains(rules, backend, live, (tables, network.links)) {
            let mut search =
                Search { captured: &captured, links: &links, base: &base, seen: BTreeSet::new() };
            let is_met = |stage| stage == Stage::Prerouting && base.kind.is_nat;
            let parts = base.parts.iter().filter(|part| is_met(part.position.stage));
            let rules: Vec<Place> =
                parts.flat_map(|part| search.rules(&base.chain, &part.rules, 0)).collect();
            for Place { words: rule, about } in rules {
                let sentence = format!(
                    "a foreign rule applies to packets that TPROXY captures{rule}: the kernel drops what arrives on {name} and gets a \
                     loopback address ({why})"
                );
                let advice = "; exempt the captured ports from the rule or delete it";
                found.push(
                    Finding::new(Problem::ForeignRule, sentence).advice(advice).about(about).family(*family),
                );
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
    captured: &'a CapturedTraffic,
    links: &'a [&'a Link],
    base: &'a BaseChain,
    seen: BTreeSet<&'a str>,
}

impl<'a> Search<'a> {
    /// The rules of a chain, and of those that it jumps to, that give captured packets a loopback address.
    fn rules(&mut self, chain: &str, rules: &'a [LiveRule], depth: usize) -> Vec<Place> {
        let mut found = Vec::new();
        for rule in rules {
            if !self.may_match(rule) {
                continue;
            }
            if let Some((name, rules)) = self.base.chains.get_key_value(rule.target()) {
                if depth < DEEPEST && self.seen.insert(name) {
                    found.extend(self.rules(name, rules, depth + 1));
                }
            } else if is_to_loopback(&rule.effect()) {
                found.push(self.base.place(chain, rule));
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
