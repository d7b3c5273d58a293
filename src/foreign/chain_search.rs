//! The search for what a base chain and the chains that it calls do to captured packets.

use std::collections::BTreeSet;

use nfnetlink::nftables::{Expression, Rule, Table, Verdict};

use super::expression_words::{is_verdict_map, rewrites, word, word_of_effect};
use super::shared_tables::is_of_iptables;
use crate::live_rules::{Effect, LiveRule};
use crate::model::{self, Target};

/// The search for what a base chain does.
pub(super) struct Search<'a> {
    pub(super) table: &'a Table,
    pub(super) may_match: &'a dyn Fn(&Rule) -> bool,
    /// The rules of a verdict map, for its members that may match; `None` if they are not examined.
    pub(super) mapped: &'a dyn Fn(&Rule) -> Option<Vec<LiveRule>>,
    /// The place of the first of some rules behind which no captured packet is left.
    pub(super) end: &'a dyn Fn(&[Rule]) -> Option<usize>,
    pub(super) seen: BTreeSet<&'a str>,
}

impl<'a> Search<'a> {
    /// What these rules, and those of chains that they jump to, do to captured packets; and whether they
    /// accept all that have not left the chain by then.
    pub(super) fn collect(&mut self, rules: &'a [Rule], does: &mut BTreeSet<String>) -> bool {
        let mut some_leave = false;
        let end = (self.end)(rules);
        let met = end.and_then(|at| rules.get(..=at)).unwrap_or(rules);
        for rule in met.iter().filter(|rule| (self.may_match)(rule)) {
            if is_accept(rule) {
                return !some_leave;
            }
            for expression in &rule.expressions {
                let mapped = is_verdict_map(expression).then(|| (self.mapped)(rule)).flatten();
                for mapped in mapped.iter().flatten() {
                    does.extend(word_of_effect(&mapped.effect()).map(str::to_owned));
                    some_leave |= *mapped.effect() == Effect::Known(Target::Return);
                    some_leave |=
                        mapped.chain().is_some_and(|(name, is_goto)| self.leave((name, is_goto), does));
                }
                if mapped.is_some() {
                    continue;
                }
                does.extend(word(expression).or_else(|| rewrites(self.table, rule, expression)));
                let is_goto = matches!(expression, Expression::Verdict(Verdict::Goto(_)));
                some_leave |= matches!(expression, Expression::Verdict(Verdict::Return));
                if let Expression::Verdict(Verdict::Jump(name) | Verdict::Goto(name)) = expression {
                    some_leave |= self.leave((name, is_goto), does);
                }
            }
        }
        end.is_some() && !some_leave
    }

    /// Adds what a chain does that packets are sent to; whether some leave the calling chain there, too.
    fn leave(&mut self, (name, is_goto): (&str, bool), does: &mut BTreeSet<String>) -> bool {
        // Rules of an earlier run of ours leave in this one.
        let ours = is_of_iptables(self.table) && model::Chain::from_name(name).is_some();
        let next = self.table.chains.iter().find(|next| next.name == name).filter(|_| !ours);
        let next = next.filter(|next| self.seen.insert(&next.name));
        let accepts = next.is_some_and(|next| self.collect(&next.rules, does));
        is_goto && !accepts
    }
}

/// Whether a rule accepts every packet.
fn is_accept(rule: &Rule) -> bool {
    let mut others =
        rule.expressions.iter().filter(|expression| !matches!(expression, Expression::Counter { .. }));
    matches!((others.next(), others.next()), (Some(Expression::Verdict(Verdict::Accept)), None))
}
