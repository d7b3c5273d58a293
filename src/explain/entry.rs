//! One rule, of the options or as it was read from the kernel.

use std::borrow::Cow;

use super::foreign_rule::lacks_words;
use crate::model::{Chain, Family, Rule, Statement, Target, Why};
use crate::parse::{self, Line, NativeLine};
use crate::text::one_line;

/// One rule.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The rule, if the model has words for all of it.
    pub(crate) statement: Option<Statement>,
    /// Why it exists, if it is ours.
    pub(crate) why: Option<Why>,
    /// Its words, where it was read from the kernel.
    pub(super) text: Option<String>,
    /// Whether it is one of nftables, whose tests of the owner fail without a socket.
    pub(crate) is_native: bool,
    /// Its number in its chain; that of a native rule for several elements of a set is the same for each.
    pub(super) number: usize,
    /// Its handle in nf_tables, if that is known.
    handle: Option<u64>,
}

impl Entry {
    pub(super) fn of(rule: &Rule) -> Self {
        Self {
            statement: Some(rule.statement.clone()),
            why: Some(rule.why),
            text: None,
            is_native: false,
            number: 0,
            handle: None,
        }
    }

    pub(super) fn read(number: usize, line: &Line, why: Option<Why>) -> Self {
        let (statement, text) = (line.statement.clone(), Some(line.text.clone()));
        Self { statement, why, text, is_native: false, number, handle: line.handle }
    }

    pub(super) fn native(line: NativeLine) -> Self {
        let NativeLine { text, statement, why, rule } = line;
        Self { statement, why, text: Some(text), is_native: true, number: rule, handle: None }
    }

    /// A foreign rule of iptables.
    pub(super) fn foreign(family: Family, (number, text): (usize, &str)) -> Self {
        let (statement, text) = (parse::statement(family, text), Some(text.to_owned()));
        Self { statement, why: None, text, is_native: false, number, handle: None }
    }

    /// What a foreign rule of nftables does, or a part of that.
    pub(super) fn of_nftables(family: Family, text: &str, (number, handle): (usize, Option<u64>)) -> Self {
        Self { is_native: true, handle, ..Self::foreign(family, (number, text)) }
    }

    /// Whether it replies with an error in place of the receiver.
    pub(super) fn rejects(&self) -> bool {
        parse::target_words(&self.text()).is_some_and(|words| words.iter().any(|word| word == "REJECT"))
    }

    /// The chain that it jumps or goes to, if that is one of ours.
    pub(super) fn jump(&self) -> Option<Chain> {
        if let Some(Statement { target: Target::Jump(chain), .. }) = self.statement {
            return Some(chain);
        }
        let words = parse::target_words(self.text.as_deref()?)?;
        words.iter().find_map(|word| Chain::from_name(word))
    }

    /// Whether it tests the mark of a connection, or gives it to packets.
    pub(super) fn reads_connmark(&self) -> bool {
        match &self.statement {
            Some(statement) => {
                statement.matcher.connmark.is_some() || statement.target == Target::RestoreMark
            }
            None => {
                ["-m connmark", "--restore-mark", "-m unknown "].iter().any(|word| self.text().contains(word))
            }
        }
    }

    /// Whether another program wrote it.
    pub(super) const fn is_foreign(&self) -> bool {
        self.why.is_none()
    }

    /// Its words in one line. Where some of them are not known, its handle or number in the chain, by which it can be found.
    pub(super) fn shown(&self) -> String {
        let text = self.text();
        let shown = one_line(&text);
        match self.handle {
            _ if !self.is_foreign() || !lacks_words(&text) => shown.into_owned(),
            Some(handle) => format!("{shown} (handle {handle})"),
            None => format!("{shown} (rule {} of the chain)", self.number + 1),
        }
    }

    /// How many of its tests are known.
    pub(super) fn known_tests(&self) -> usize {
        parse::matches::read(&self.text()).map_or(0, |tests| tests.known.len())
    }

    /// Its words behind `-A CHAIN`.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match (&self.text, &self.statement) {
            (Some(text), _) => Cow::Borrowed(text),
            (None, Some(statement)) => Cow::Owned(statement.to_string()),
            (None, None) => Cow::Borrowed(""),
        }
    }
}
