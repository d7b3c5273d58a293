//! Rules in the kernel as data: tests and an effect, whichever program wrote them, and with which tool.
//!
//! `parse` makes each of them once. Warnings of a run, `check`, `explain` and `diff` ask for tests and
//! effects, never for words.

mod effect;
mod field_match;
mod mark_change;
mod of_matcher;
mod translation;
mod zone;

use std::borrow::Cow;
use std::sync::Arc;

use nfnetlink::nftables;

use crate::model::{Statement, Target};

pub use effect::Effect;
pub use field_match::*;
pub use mark_change::{Bits, MarkChange};
pub use translation::{To, Translation};
pub use zone::Zone;

/// A rule, of the options or as it was read from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRule {
    /// What it says.
    pub meaning: Meaning,
    /// The words behind `-A CHAIN`, where it was read from the kernel.
    words: Option<String>,
    /// The words from the target on: `-j NAME ...` or `-g NAME ...`; none where the model has terms for all
    /// of the rule.
    target: Vec<String>,
    /// Whether it is in a table of iptables, which cannot delete it, as nftables has other words for it.
    of_nftables: bool,
    /// Where nftables has it, if that is known.
    place: Option<Arc<NftPlace>>,
}

/// Where nftables has a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftPlace {
    /// The table, as in `inet filter`.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The kernel's number of the rule.
    pub handle: u64,
}

impl NftPlace {
    /// The place of a rule whose handle was read.
    #[must_use]
    pub fn of(
        (table, chain): (&nftables::Table, &nftables::Chain),
        rule: &nftables::Rule,
    ) -> Option<Arc<Self>> {
        let (table, chain) = (table.name.to_string(), chain.name.clone());
        Some(Arc::new(Self { handle: rule.handle?, table, chain }))
    }
}

/// What a rule says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// All of it in terms of the model.
    Modelled(Statement),
    /// More than the model has terms for.
    Read(Reading),
}

/// The tests and the effect of a rule for which the model lacks terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The tests that can be evaluated. All of them have to hold.
    pub tests: Vec<FieldMatch>,
    /// The words of the other tests.
    pub unread: Vec<String>,
    /// The effect on a packet that passes all tests.
    pub effect: Effect,
    /// Whether the tool has no words for a part of the rule, or the options of a part are not known.
    pub lacks_words: bool,
    /// Whether not even the name of a part of the rule is known.
    pub is_incomplete: bool,
}

impl LiveRule {
    /// A rule as it was read from the kernel: its meaning, its words behind `-A CHAIN`, those of them from
    /// the target on.
    #[must_use]
    pub const fn read(meaning: Meaning, words: String, target: Vec<String>) -> Self {
        Self { meaning, words: Some(words), target, of_nftables: false, place: None }
    }

    /// A rule that the model has terms for, with its words behind `-A CHAIN`.
    #[must_use]
    pub const fn modelled(statement: Statement, words: String) -> Self {
        Self {
            meaning: Meaning::Modelled(statement),
            words: Some(words),
            target: Vec::new(),
            of_nftables: false,
            place: None,
        }
    }

    /// Says whether iptables cannot delete the rule from its own table.
    #[must_use]
    pub const fn of_nftables(mut self, is_of_nftables: bool) -> Self {
        self.of_nftables = is_of_nftables;
        self
    }

    /// Whether iptables cannot delete the rule from its own table.
    #[must_use]
    pub const fn is_of_nftables(&self) -> bool {
        self.of_nftables
    }

    /// Says where nftables has the rule.
    #[must_use]
    pub fn at(self, place: Option<Arc<NftPlace>>) -> Self {
        Self { place, ..self }
    }

    /// Where nftables has the rule, if that is known.
    #[must_use]
    pub const fn place(&self) -> Option<&Arc<NftPlace>> {
        self.place.as_ref()
    }

    /// The words behind `-A CHAIN`, for messages and to delete the rule. Bytes that are not UTF-8 are
    /// replaced.
    #[must_use]
    pub fn words(&self) -> Cow<'_, str> {
        match (&self.words, &self.meaning) {
            (Some(words), _) => Cow::Borrowed(words),
            (None, Meaning::Modelled(statement)) => Cow::Owned(statement.to_string()),
            (None, Meaning::Read(_)) => Cow::Borrowed(""),
        }
    }

    /// The name of the target or of the chain that the rule jumps to, for messages; empty without a target.
    #[must_use]
    pub fn target(&self) -> &str {
        match &self.meaning {
            Meaning::Modelled(statement) => statement.target.name(),
            Meaning::Read(_) => self.target.get(1).map_or("", String::as_str),
        }
    }

    /// The words from the target on: `-j NAME ...` or `-g NAME ...`.
    #[must_use]
    pub fn target_words(&self) -> String {
        match &self.meaning {
            Meaning::Modelled(_) => {
                let words = self.words();
                let at = words.rfind("-j ").unwrap_or(words.len());
                words.get(at..).unwrap_or_default().to_owned()
            }
            Meaning::Read(_) => self.target.join(" "),
        }
    }

    /// The rule in terms of the model, if the model has terms for all of it.
    #[must_use]
    pub const fn statement(&self) -> Option<&Statement> {
        match &self.meaning {
            Meaning::Modelled(statement) => Some(statement),
            Meaning::Read(_) => None,
        }
    }

    /// The tests that can be evaluated.
    #[must_use]
    pub fn tests(&self) -> Cow<'_, [FieldMatch]> {
        match &self.meaning {
            Meaning::Modelled(statement) => Cow::Owned((&statement.matcher).into()),
            Meaning::Read(reading) => Cow::Borrowed(&reading.tests),
        }
    }

    /// The words of the tests that cannot be evaluated.
    #[must_use]
    pub fn unread(&self) -> &[String] {
        match &self.meaning {
            Meaning::Modelled(_) => &[],
            Meaning::Read(reading) => &reading.unread,
        }
    }

    /// The effect on a packet that passes all tests.
    #[must_use]
    pub fn effect(&self) -> Cow<'_, Effect> {
        match &self.meaning {
            Meaning::Modelled(statement) => Cow::Owned(Effect::Known(statement.target)),
            Meaning::Read(reading) => Cow::Borrowed(&reading.effect),
        }
    }

    /// The chain that the rule jumps or goes to, and whether it goes there for good.
    #[must_use]
    pub fn chain(&self) -> Option<(&str, bool)> {
        match &self.meaning {
            Meaning::Modelled(Statement { target: Target::Jump(chain), .. }) => Some((chain.name(), false)),
            Meaning::Read(Reading { effect: Effect::Chain { name, is_goto }, .. }) => Some((name, *is_goto)),
            Meaning::Modelled(_) | Meaning::Read(_) => None,
        }
    }

    /// Whether the rule is for every packet.
    #[must_use]
    pub fn is_unconditional(&self) -> bool {
        self.unread().is_empty() && self.tests().is_empty()
    }

    /// Whether the tool has no words for a part of the rule.
    #[must_use]
    pub const fn lacks_words(&self) -> bool {
        matches!(&self.meaning, Meaning::Read(Reading { lacks_words: true, .. }))
    }

    /// Whether every packet passes it: it has no tests.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        self.tests().is_empty() && self.unread().is_empty() && !self.lacks_words()
    }

    /// Whether one of the tests is of the user or the group of the socket.
    #[must_use]
    pub fn tests_owner(&self) -> bool {
        match &self.meaning {
            Meaning::Modelled(statement) => !statement.matcher.owners.is_empty(),
            Meaning::Read(reading) => {
                reading.tests.iter().any(|test| matches!(test.field, Field::Uid | Field::Gid))
            }
        }
    }

    /// Whether the rule tests the mark of a connection, or gives it to packets, or may do so.
    #[must_use]
    pub fn reads_connmark(&self) -> bool {
        match &self.meaning {
            Meaning::Modelled(Statement { matcher, target }) => {
                matcher.connmark.is_some() || *target == Target::RestoreMark
            }
            Meaning::Read(Reading { tests, effect, is_incomplete, .. }) => {
                let is_copied = matches!(effect, Effect::ChangesMark(MarkChange::Restore { .. }));
                *is_incomplete || is_copied || tests.iter().any(|test| test.field == Field::Connmark)
            }
        }
    }
}

impl From<Statement> for LiveRule {
    fn from(statement: Statement) -> Self {
        Self {
            meaning: Meaning::Modelled(statement),
            words: None,
            target: Vec::new(),
            of_nftables: false,
            place: None,
        }
    }
}
