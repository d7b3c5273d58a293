//! Foreign rules of nat that give packets a loopback address which TPROXY has captured: TPROXY ends no table but its own.

use std::collections::BTreeSet;

use nfnetlink::nftables::Table;

use super::concern::Captured;
use super::overwritten::Network;
use super::overwritten::chains::{BaseChain, base_chains};
use super::overwritten::mark_paths::Stage;
use super::{DEEPEST, IptablesRules};
use crate::model::{Backend, Family, FamilyRules, Link, PerFamily};
use crate::parse::{self, matches};
use crate::text::one_line;

/// Warnings of foreign rules by which the kernel drops connections that TPROXY captures.
#[must_use]
pub fn that_translate_behind_tproxy(
    desired: &PerFamily<FamilyRules>,
    backend: Backend,
    live: IptablesRules<'_>,
    network: Network<'_>,
    tables: &[Table],
) -> Vec<String> {
    let mut found = Vec::new();
    for (family, rules) in desired {
        let mut captured = Captured::of(rules);
        captured.dns = false;
        let links: Vec<&Link> = network.links.iter().filter(|link| drops_loopback(*family, link)).collect();
        let Some(link) = links.first().filter(|_| captured.keeps_port) else { continue };
        let name = one_line(&link.name);
        let Some(why) = link.refuses_loopback(*family, &name) else { continue };
        for base in base_chains(rules, backend, live, (tables, network.links)) {
            let mut search = Search {
                family: *family,
                captured: &captured,
                links: &links,
                base: &base,
                seen: BTreeSet::new(),
            };
            let is_met = |stage| stage == Stage::Prerouting && base.kind.is_nat;
            let parts = base.parts.iter().filter(|part| is_met(part.position.stage));
            let rules: Vec<String> =
                parts.flat_map(|part| search.rules(&base.chain, &part.rules, 0)).collect();
            for rule in rules {
                found.push(format!(
                    "a foreign rule applies to packets that TPROXY captures{rule}: the kernel drops what arrives on {name} and gets a \
                     loopback address ({why}); exempt the captured ports from the rule or delete it"
                ));
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
    family: Family,
    captured: &'a Captured,
    links: &'a [&'a Link],
    base: &'a BaseChain,
    seen: BTreeSet<&'a str>,
}

impl<'a> Search<'a> {
    /// The rules of a chain, and of those that it jumps to, that give captured packets a loopback address.
    fn rules(&mut self, chain: &str, rules: &'a [String], depth: usize) -> Vec<String> {
        let mut found = Vec::new();
        for text in rules {
            if !self.may_match(text) {
                continue;
            }
            let target = parse::target_words(text).unwrap_or_default();
            let Some(name) = target.get(1) else { continue };
            if let Some((name, rules)) = self.base.chains.get_key_value(name) {
                if depth < DEEPEST && self.seen.insert(name) {
                    found.extend(self.rules(name, rules, depth + 1));
                }
            } else if self.is_to_loopback(&target) {
                found.push(self.base.shown(chain, text));
            }
        }
        found
    }

    /// Whether it may match what TPROXY captures: what arrives on an interface other than lo.
    fn may_match(&self, text: &str) -> bool {
        let Some(words) = parse::words_of(text) else { return false };
        let names: Vec<u128> =
            self.links.iter().map(|link| matches::name_number(link.name.as_bytes())).collect();
        let tests = matches::of_words(&words).known;
        let mut interfaces = tests.iter().filter(|test| test.field == matches::Field::InInterface);
        interfaces.all(|test| test.holds_for_any(&names)) && self.captured.may_match(&words)
    }

    /// Whether these words of a target name a loopback address, alone, as a range or with a port.
    fn is_to_loopback(&self, target: &[String]) -> bool {
        let options = ["--to-destination", "--to"];
        let at = target.iter().position(|word| options.contains(&word.as_str()));
        let Some(to) = at.and_then(|at| target.get(at + 1)) else { return false };
        match self.family {
            Family::V4 => to.starts_with("127."),
            Family::V6 => {
                let to = to.trim_start_matches('[');
                to.split([']', '-', '/']).next() == Some("::1")
            }
        }
    }
}
