//! Foreign rules that give connections the mark of TPROXY.

use nfnetlink::nftables::{self, CtKey, Expression, Family as NftFamily, Rule};

use super::base_chains::is_of_iptables;
use super::concern::Captured;
use super::{Live, shown};
use crate::model::{Backend, Family, FamilyRules, Mark, PerFamily, Variant};
use crate::parse;

/// Warnings of foreign rules, in whatever chain, that set the mark which the desired rules look for in connections.
#[must_use]
pub fn that_mark_connections(
    desired: &PerFamily<FamilyRules>,
    backend: Backend,
    live: Live<'_>,
    tables: &[nftables::Table],
) -> Vec<String> {
    let mut found = Vec::new();
    for rules in desired.values() {
        let family = rules.family;
        let mut matchers =
            rules.tables.values().flat_map(|table| table.rules()).map(|rule| &rule.statement.matcher);
        let Some(mark) = matchers.find_map(|matcher| matcher.connmark) else { continue };
        let mut captured = Captured::of(rules);
        captured.dns = false;
        let marks = Marks { captured, mark };
        let listed = live.rules.iter().filter(|((_, of), _)| *of == family);
        let listed = listed.map(|((variant, _), observed)| (*variant, observed));
        for (variant, observed) in
            listed.chain(live.legacy.get(&family).map(|rules| (Variant::Legacy, rules)))
        {
            for (table, rules) in &observed.tables {
                let hooks = rules
                    .hooks
                    .iter()
                    .flat_map(|(hook, lines)| lines.iter().map(|line| (hook.name(), &line.text)));
                let chains = rules.foreign.iter();
                let chains =
                    chains.flat_map(|(chain, lines)| lines.iter().map(|text| (chain.as_str(), text)));
                for (chain, text) in hooks.chain(chains).filter(|(_, text)| marks.has(text, false)) {
                    let (table, rule) = (table.name(), shown(chain, text));
                    found.push(marks.warning(&format!(" ({family}, {variant}): {table} `{rule}`")));
                }
            }
        }
        let of_family = if family == Family::V4 { NftFamily::Ip } else { NftFamily::Ip6 };
        for table in tables.iter().filter(|table| [NftFamily::Inet, of_family].contains(&table.name.family)) {
            // These are listed.
            if backend == Backend::Iptables(Variant::Nft) && is_of_iptables(table) {
                continue;
            }
            let sets = |rule: &Rule| marks.has(&parse::words_of_rule(family, rule), marks.are_set_by(rule));
            for chain in table.chains.iter().filter(|chain| chain.rules.iter().any(sets)) {
                let warning = marks.warning(&format!(": {} {}", table.name, chain.name));
                if !found.contains(&warning) {
                    found.push(warning);
                }
            }
        }
    }
    found
}

struct Marks {
    captured: Captured,
    mark: Mark,
}

impl Marks {
    /// Whether a rule of iptables sets the mark, or one that does so has these words, for TCP.
    fn has(&self, text: &str, is_set: bool) -> bool {
        let sets = |target: &[String]| match target {
            [_, name, option, value, ..] => {
                name == "CONNMARK"
                    && option == "--set-xmark"
                    && value.starts_with(&format!("{:#x}/", self.mark.0))
            }
            _ => false,
        };
        (is_set || parse::target_words(text).is_some_and(|target| sets(&target)))
            && parse::words_of(text).is_some_and(|words| self.captured.may_match(&words))
    }

    /// Whether this is `ct mark set` with the mark.
    fn are_set_by(&self, rule: &Rule) -> bool {
        let mark = self.mark.0.to_ne_bytes();
        let loads = |expression: &Expression| matches!(expression, Expression::Immediate { value, .. } if *value == mark);
        let sets = |expression: &Expression| matches!(expression, Expression::SetCt { key: CtKey::Mark, .. });
        rule.expressions.windows(2).any(|pair| matches!(pair, [first, then] if loads(first) && sets(then)))
    }

    fn warning(&self, rule: &str) -> String {
        format!(
            "a foreign rule gives connections the mark {} of TPROXY{rule}: what they send is routed to lo, so they end, those of the \
             proxy too; choose another mark (--istio-inbound-tproxy-mark) or delete the rule",
            self.mark
        )
    }
}
