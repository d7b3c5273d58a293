//! Findings: what may keep packets of the mesh from where they belong, as values until they are printed.

use std::fmt;

/// Something that decides over packets, identified without its words in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A rule of netfilter.
    Rule(RuleId),
    /// A base chain as a whole.
    Chain {
        /// The table, as in [`RuleId::table`].
        table: String,
        /// The name of the chain.
        chain: String,
    },
    /// An interface, by its name.
    Interface(String),
    /// A policy rule, in the words of `ip rule`.
    PolicyRule(String),
    /// A state of the pod, by the sentence about it.
    Condition(String),
}

/// A rule and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleId {
    /// The table: `nat`; `iptables-legacy nat` for another variant than that of our rules; `ip nat` in nftables.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The words of the rule, which is the only one of the chain with these words, or like the others.
    pub words: String,
}

impl Subject {
    /// Whether this is a chain, and the other one a rule in it.
    fn has(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Chain { table, chain }, Self::Rule(rule))
            if (table, chain) == (&rule.table, &rule.chain))
    }
}

/// A finding, for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The sentence that is printed.
    pub sentence: String,
    /// What causes it.
    pub about: Vec<Subject>,
}

impl Finding {
    /// Whether one of the subjects is the cause.
    #[must_use]
    pub fn is_about_any(&self, subjects: &[Subject]) -> bool {
        subjects.iter().any(|subject| self.about.contains(subject))
    }
}

impl Finding {
    /// Whether the cause is a rule of the chain that the other finding is about as a whole.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let has_rule = |chain: &Subject| self.about.iter().any(|about| chain.has(about));
        !other.about.is_empty() && other.about.iter().all(has_rule)
    }
}

impl From<String> for Finding {
    fn from(sentence: String) -> Self {
        Self { sentence, about: Vec::new() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}
