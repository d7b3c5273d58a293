//! Foreign rules that give packets or connections the mark of TPROXY, or overwrite marks that it needs.

use std::collections::BTreeSet;

use nfnetlink::nftables::{Chain as NftChain, CtKey, Expression, MetaKey, Rule, Table};

use super::captured_traffic::CapturedTraffic;
use super::overwritten::chains::Place;
use super::overwritten::{self, Network};
use super::shared_tables::{foreign_chains, hook_of, is_listed};
use super::{IptablesRules, shown};
use crate::finding::{Finding, Problem, RuleId, Subject};
use crate::live_rules::{LiveRule, MarkChange};
use crate::model::{Backend, Family, FamilyRules, Mark, PerFamily};
use crate::parse::{self, Observed};
use crate::text::shell_words;

/// What has the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marked {
    Connections,
    Packets,
}

/// Chains in which the way of a packet is chosen already.
const ROUTED: [&str; 3] = ["INPUT", "FORWARD", "POSTROUTING"];

/// Warnings of foreign rules that set the mark which the desired rules look for in connections: in whatever
/// chain, and where policy routing follows for those that set it in packets.
#[must_use]
pub fn find_tproxy_marks(
    desired: &PerFamily<FamilyRules>,
    backend: Backend,
    live: IptablesRules<'_>,
    network: Network<'_>,
    tables: &[Table],
) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for rules in desired.values() {
        let family = rules.family;
        let mut matchers =
            rules.tables.values().flat_map(|table| table.rules()).map(|rule| &rule.statement.matcher);
        let Some(mark) = matchers.find_map(|matcher| matcher.connmark) else { continue };
        let mut captured = CapturedTraffic::of(rules);
        captured.dns = false;
        let marks = Marks { family, captured, mark };
        let mut named = BTreeSet::new();
        for (variant, observed) in live.of_family(family) {
            let is_ours = backend == Backend::Iptables(variant);
            for (marked, id) in marks.in_rules(observed) {
                let RuleId { table, chain, words, .. } = &id;
                let rule = format!(" ({family}, {variant}): {table} `{}`", shown(chain, words));
                let table = if is_ours { table.clone() } else { format!("{variant} {table}") };
                let about = [Subject::Rule(RuleId { table, ..id.clone() })];
                found.push(marks.warning(marked, &rule).about(about));
                named.insert(rule);
            }
        }
        for table in tables.iter().filter(|table| parse::has_packets_of(&table.name, family)) {
            if !is_listed(table, backend) {
                for (marked, chain) in marks.in_table(table) {
                    let rule = format!(": {} {}", table.name, chain.name);
                    found.push(marks.warning(marked, &rule).subject(listing(&rule)));
                    named.insert(rule);
                }
            }
        }
        for (rule, harms) in overwritten::in_family(rules, mark, backend, (live, network), tables) {
            let Place { words: rule, about } = rule;
            if !named.contains(&rule) {
                let sentence = format!("a foreign rule changes marks of TPROXY{rule}: {harms}");
                let advice = "; exempt these packets from the rule or delete it";
                let subject = if about.is_none() { listing(&rule) } else { String::new() };
                let finding = Finding::new(Problem::TproxyMark, sentence).advice(advice).about(about);
                found.push(finding.subject(subject).family(family));
            }
        }
    }
    // The tables of both families, and rules of one chain.
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
    /// The rules of iptables, with their chains, where other programs may have some.
    fn in_rules<'a>(&'a self, observed: &'a Observed) -> impl Iterator<Item = (Marked, RuleId)> + 'a {
        observed.tables.iter().flat_map(move |(table, rules)| {
            let hooks = rules.hooks.iter();
            let hooks = hooks
                .flat_map(|(hook, lines)| lines.iter().map(|line| (hook.name(), line.live(self.family))));
            let chains = rules.foreign.iter();
            let chains =
                chains.flat_map(|(chain, lines)| lines.iter().map(|rule| (chain.as_str(), rule.clone())));
            hooks.chain(chains).filter_map(move |(chain, rule)| {
                let marked = self.of_rule(&rule)?;
                let counts = marked == Marked::Connections || !ROUTED.contains(&chain);
                counts.then(|| (marked, RuleId::of(table.name(), chain, &rule)))
            })
        })
    }

    /// The chains of a table of nftables.
    fn in_table<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = (Marked, &'a NftChain)> {
        foreign_chains(table).flat_map(move |chain| {
            let is_routed =
                chain.base.as_ref().is_some_and(|base| hook_of(base).is_none_or(|(hook, _)| hook.is_none()));
            chain.rules.iter().filter_map(move |rule| {
                let marked = self.of_expressions(rule, &parse::rule_of(self.family, rule))?;
                (marked == Marked::Connections || !is_routed).then_some((marked, chain))
            })
        })
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

    /// What a rule of nftables gives the mark, by `ct mark set` or `meta mark set`, if TCP may meet it.
    fn of_expressions(&self, rule: &Rule, live: &LiveRule) -> Option<Marked> {
        let mark = self.mark.0.to_ne_bytes();
        let loads = |expression: &Expression| matches!(expression, Expression::Immediate { value, .. } if *value == mark);
        let marked = rule.expressions.windows(2).find_map(|pair| match pair {
            [first, Expression::SetCt { key: CtKey::Mark, .. }] if loads(first) => Some(Marked::Connections),
            [first, Expression::SetMeta { key: MetaKey::Mark, .. }] if loads(first) => Some(Marked::Packets),
            _ => None,
        });
        marked.filter(|_| self.captured.may_match(live)).or_else(|| self.of_rule(live))
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
