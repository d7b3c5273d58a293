//! Foreign rules that give packets or connections the mark of TPROXY, or overwrite marks that it needs.

use std::collections::{BTreeMap, BTreeSet};

use super::{BaseChain, CapturedTraffic, Examined, Place, Stage};
use crate::explain::{self, Affected, Entry, MarkFacts};
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
/// chain, and where policy routing follows for those that set it in packets. And of those by which packets
/// go astray that depend on a mark.
#[must_use]
pub fn find_tproxy_marks(examined: &[Examined<'_>]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for family in examined {
        let mut rules = family.desired.tables.values().flat_map(|table| table.rules());
        let Some(mark) = rules.find_map(|rule| rule.statement.matcher.connmark) else { continue };
        let mut captured = family.captured.clone();
        captured.dns = false;
        let marks = Marks { family: family.family, captured, mark };
        let mut given = Vec::new();
        for base in &family.chains() {
            for (marked, place) in marks.in_table(family, base) {
                found.push(with_place(marks.warning(marked, &place), place.clone()));
                given.push(place);
            }
        }
        for (place, affected) in marks.harmful(family) {
            if !given.contains(&place) {
                let harms = consequences(&affected, mark);
                let sentence = format!("a foreign rule changes marks of TPROXY{place}: {harms}");
                let advice = "; exempt these packets from the rule or delete it";
                let finding = Finding::new(Problem::TproxyMark, sentence).advice(advice);
                found.push(with_place(finding.family(family.family), place));
            }
        }
    }
    // The tables of both families, rules of one chain, and chains that several base chains may jump to.
    let mut seen = BTreeSet::new();
    found.retain(|warning| seen.insert(warning.to_string()));
    found
}

/// The finding about a rule there; of nftables it has the command that lists the chain.
fn with_place(finding: Finding, place: Place) -> Finding {
    let finding = match &place {
        Place::Iptables { .. } => finding,
        Place::Nftables { table, chain } => finding.subject(format!(
            "`nft list chain {}` shows its rules: exempt the captured packets from those that set marks",
            shell_words(&format!("{table} {chain}"))
        )),
    };
    place.about(finding)
}

/// The consequences of one rule.
fn consequences(affected: &BTreeSet<Affected>, mark: Mark) -> String {
    let of = |affected: &Affected| match affected {
        Affected::OwnCalls => {
            "connections from a proxy that runs as root to its own pod are not captured".to_owned()
        }
        Affected::ClientAddress => {
            "the app's replies to connections that the proxy opens from the client's address do not arrive"
                .to_owned()
        }
        Affected::OtherCalls => "connections of other programs to the pod itself are captured".to_owned(),
        Affected::Clients => format!(
            "captured connections get the mark {mark}, with which the proxy's replies are routed to lo"
        ),
    };
    affected.iter().map(of).collect::<Vec<_>>().join("; ")
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

    /// The rules that change marks on which packets depend, with the traffic that each breaks.
    fn harmful(&self, family: &Examined<'_>) -> impl Iterator<Item = (Place, BTreeSet<Affected>)> {
        let Examined { desired, fib, links, .. } = *family;
        let facts = MarkFacts { desired, mark: self.mark, fib, links };
        let mut found: BTreeMap<String, (Place, BTreeSet<Affected>)> = BTreeMap::new();
        for (step, affected) in explain::mark_harms(family.rules, facts) {
            let Some(base) = family.base_of(&step) else { continue };
            if family.is_foreign(&base, step.rule) && !base.is_ours(step.chain) {
                let place = base.place(self.family, step.chain, &step.rule.rule);
                let known = found.entry(place.to_string()).or_insert((place, BTreeSet::new()));
                known.1.insert(affected);
            }
        }
        found.into_values()
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

    fn warning(&self, marked: Marked, rule: &Place) -> Finding {
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
