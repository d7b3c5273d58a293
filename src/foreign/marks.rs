//! Foreign rules that give packets or connections the mark of TPROXY, or overwrite marks that it needs.

use std::collections::BTreeSet;

use super::{BaseChain, CapturedTraffic, Examined, Place, Stage, overwritten};
use crate::explain::Entry;
use crate::finding::{Finding, Problem};
use crate::live_rules::{LiveRule, MarkChange};
use crate::model::{Family, Mark};
use crate::text::shell_words;

/// What has the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marked {
    Connections,
    Packets,
}

/// Warnings of foreign rules that set the mark which the desired rules look for in connections: in whatever
/// chain, and where policy routing follows for those that set it in packets.
#[must_use]
pub fn find_tproxy_marks(examined: &[Examined<'_>]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for family in examined {
        let mut rules = family.desired.tables.values().flat_map(|table| table.rules());
        let Some(mark) = rules.find_map(|rule| rule.statement.matcher.connmark) else { continue };
        let mut captured = family.captured.clone();
        captured.dns = false;
        let marks = Marks { family: family.family, captured, mark };
        let mut named = BTreeSet::new();
        for base in family.chains() {
            for (marked, Place { words, about }) in marks.in_table(family, &base) {
                let subject = if about.is_none() { listing(&words) } else { String::new() };
                found.push(marks.warning(marked, &words).subject(subject).about(about));
                named.insert(words);
            }
        }
        for (Place { words, about }, harms) in overwritten::in_family(family, mark) {
            if !named.contains(&words) {
                let sentence = format!("a foreign rule changes marks of TPROXY{words}: {harms}");
                let advice = "; exempt these packets from the rule or delete it";
                let subject = if about.is_none() { listing(&words) } else { String::new() };
                let finding = Finding::new(Problem::TproxyMark, sentence).advice(advice).about(about);
                found.push(finding.subject(subject).family(family.family));
            }
        }
    }
    // The tables of both families, rules of one chain, and chains that several base chains may jump to.
    let mut seen = BTreeSet::new();
    found.retain(|warning| seen.insert(warning.to_string()));
    found
}

/// The command that lists a chain of nftables, which is named behind a colon.
fn listing(place: &str) -> String {
    let chain = shell_words(place.trim_start_matches(": "));
    format!("`nft list chain {chain}` shows its rules: exempt the captured packets from those that set marks")
}

struct Marks {
    family: Family,
    captured: CapturedTraffic,
    mark: Mark,
}

impl Marks {
    /// The rules of a base chain, and of all chains of its table, that give the mark.
    fn in_table(&self, family: &Examined<'_>, base: &BaseChain<'_>) -> Vec<(Marked, Place)> {
        let is_routed = Stage::ROUTED.contains(&base.stage);
        let of_chain = |(chain, rules): (&str, &[Entry]), is_routed: bool| {
            let marked = |(_, entry): (usize, &Entry)| {
                let marked = self.of_rule(&entry.rule)?;
                let counts = marked == Marked::Connections || !is_routed;
                counts.then(|| (marked, base.place(self.family, chain, &entry.rule)))
            };
            family.foreign(base, rules).filter_map(marked).collect::<Vec<_>>()
        };
        let mut found = of_chain((base.chain, base.rules), is_routed);
        // The built-in chains that packets meet behind their routing are among those of a table of iptables.
        let built_in = |name: &str| Stage::ROUTED.iter().any(|stage| stage.chain() == name);
        let is_built_in = |name: &str| base.of_iptables().is_some() && built_in(name);
        found.extend(base.all_named().flat_map(|named| of_chain(named, is_built_in(named.0))));
        found
    }

    /// What a rule of iptables gives the mark, if TCP may meet it.
    fn of_rule(&self, rule: &LiveRule) -> Option<Marked> {
        let (marked, bits) = match rule.effect().mark_change()?? {
            MarkChange::Packet(bits) => (Marked::Packets, bits.value),
            MarkChange::Connection(bits) => (Marked::Connections, bits.value),
            MarkChange::Save { .. } | MarkChange::Restore { .. } => return None,
        };
        (bits == self.mark.0 && self.captured.may_match(rule)).then_some(marked)
    }

    fn warning(&self, marked: Marked, rule: &str) -> Finding {
        let (what, then) = match marked {
            Marked::Connections => {
                ("connections", "what they send is routed to lo, so they end, those of the proxy too")
            }
            Marked::Packets => {
                ("packets", "they are routed to lo, so their connections end, those of the proxy too")
            }
        };
        let cause = format!("a foreign rule gives {what} the mark {} of TPROXY{rule}: {then}", self.mark);
        Finding::new(Problem::TproxyMark, cause)
            .advice("; choose another mark (--istio-inbound-tproxy-mark) or delete the rule")
            .family(self.family)
    }
}
