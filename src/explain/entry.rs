//! One rule on the way of a packet, with its reason and where it can be found.

use std::sync::OnceLock;

use crate::live_rules::{FieldMatch, LiveRule};
use crate::model::{Chain, Family, Rule, Statement, Target, Why};
use crate::parse::{Line, NativeLine};
use crate::text::one_line;

/// One rule.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The tests and the effect of the rule.
    pub(crate) rule: LiveRule,
    /// Why it exists, if it is ours.
    pub(crate) why: Option<Why>,
    /// Whether it is one of nftables, whose tests of the owner fail without a socket.
    pub(crate) is_native: bool,
    /// The number of the rule in its chain; that of a native rule for several elements of a set is the same
    /// for each.
    pub(super) number: usize,
    /// Whether an earlier run of ours wrote it, for another backend.
    pub(crate) is_leftover: bool,
    /// The handle of the rule in nf_tables, if that is known.
    handle: Option<u64>,
    /// The tests of the rule, once they are asked for: many packets meet it.
    tests: OnceLock<Vec<FieldMatch>>,
}

impl Entry {
    pub(super) fn of(rule: &Rule) -> Self {
        Self { why: Some(rule.why), ..Self::foreign((0, rule.statement.clone().into())) }
    }

    pub(super) fn read(family: Family, (number, line): (usize, &Line), why: Option<Why>) -> Self {
        Self { why, handle: line.handle, ..Self::foreign((number, line.live(family))) }
    }

    pub(super) fn native(line: NativeLine) -> Self {
        let NativeLine { live, why, rule } = line;
        Self { why, is_native: true, ..Self::foreign((rule, live)) }
    }

    /// A foreign rule of iptables.
    pub(super) fn foreign((number, rule): (usize, LiveRule)) -> Self {
        Self {
            rule,
            why: None,
            is_native: false,
            is_leftover: false,
            number,
            handle: None,
            tests: OnceLock::new(),
        }
    }

    /// What a foreign rule of nftables does, or a part of that.
    pub(super) fn of_nftables(rule: LiveRule, (number, handle): (usize, Option<u64>)) -> Self {
        Self { is_native: true, handle, ..Self::foreign((number, rule)) }
    }

    /// Says whether an earlier run of ours wrote it, for another backend.
    pub(super) const fn leftover(mut self, is_leftover: bool) -> Self {
        self.is_leftover = is_leftover;
        self
    }

    /// The tests of the rule that can be evaluated.
    pub(super) fn tests(&self) -> &[FieldMatch] {
        self.tests.get_or_init(|| self.rule.tests().into_owned())
    }

    /// The rule in terms of the model, if the model has terms for all of it.
    pub(crate) const fn statement(&self) -> Option<&Statement> {
        self.rule.statement()
    }

    /// The target, if the model has terms for all of the rule.
    pub(super) fn target(&self) -> Option<Target> {
        Some(self.statement()?.target)
    }

    /// The chain that it jumps or goes to, if that is one of ours.
    pub(super) fn jump(&self) -> Option<Chain> {
        Chain::from_name(self.rule.chain()?.0)
    }

    /// Whether it is a rule of ours that leads to our chains, and not one for a virtual interface, which is
    /// before what was there.
    pub(crate) fn is_jump_of_ours(&self) -> bool {
        let statement = self.statement().filter(|statement| statement.matcher.in_interface.is_none());
        !self.is_foreign() && statement.is_some_and(|statement| matches!(statement.target, Target::Jump(_)))
    }

    /// Whether another program wrote it.
    pub(crate) const fn is_foreign(&self) -> bool {
        self.why.is_none()
    }

    /// Whether it is a foreign rule that changes the mark of a packet or of its connection.
    pub(super) fn changes_mark(&self) -> bool {
        self.is_foreign() && self.rule.effect().mark_change().is_some()
    }

    /// The words of the rule in one line. Where some of them are not known, its handle or number in the
    /// chain, by which it can be found.
    pub(super) fn shown(&self) -> String {
        let text = self.rule.words();
        let shown = one_line(&text);
        match self.handle {
            _ if !self.is_foreign() || !self.rule.lacks_words() => shown.into_owned(),
            Some(handle) => format!("{shown} (handle {handle})"),
            None => format!("{shown} (rule {} of the chain)", self.number + 1),
        }
    }
}
