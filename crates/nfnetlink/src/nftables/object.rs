//! Tables, chains and rules.

use std::collections::{BTreeMap, BTreeSet};

use super::{Comment, Expression, Set, TableName, Verdict};

/// A table with everything in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The name of the table.
    pub name: TableName,
    /// A comment on it; kernels before 5.10 do not keep it.
    pub comment: Option<Comment>,
    /// The sets of the table.
    pub sets: Vec<Set>,
    /// The chains of the table, in the order in which they were created.
    pub chains: Vec<Chain>,
}

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The name of the chain.
    pub name: String,
    /// Where packets enter it; `None` for a regular chain, which is entered by jumps only.
    pub base: Option<Base>,
    /// The rules of the chain in order.
    pub rules: Vec<Rule>,
}

/// What makes a chain a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// What its rules may do.
    pub kind: ChainKind,
    /// Where packets enter it.
    pub hook: Hook,
    /// The priority of the chain among the base chains of this hook: lower ones are first.
    pub priority: i32,
    /// What happens to a packet at the end of the chain: accept or drop.
    pub policy: Verdict,
}

/// The type of a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// Every packet.
    Filter,
    /// The first packet of a connection: redirections.
    Nat,
    /// Every packet that leaves; it is routed again if its mark or addresses change.
    Route,
    /// A type that this crate does not know.
    Foreign(String),
}

impl ChainKind {
    /// The name of the type.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
            Self::Foreign(name) => name,
        }
    }

    /// The type of this name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "filter" => Self::Filter,
            "nat" => Self::Nat,
            "route" => Self::Route,
            name => Self::Foreign(name.to_owned()),
        }
    }
}

/// A hook of the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Packets that come in.
    Prerouting,
    /// Packets for this machine.
    Input,
    /// Packets for others.
    Forward,
    /// Packets of local processes.
    Output,
    /// Packets that leave.
    Postrouting,
    /// A hook that this crate does not know, by its number.
    Foreign(u32),
}

impl Hook {
    /// The number of the hook in the families `inet`, `ip` and `ip6`.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
            Self::Foreign(number) => number,
        }
    }

    /// The hook with this number.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        match number {
            0 => Self::Prerouting,
            1 => Self::Input,
            2 => Self::Forward,
            3 => Self::Output,
            4 => Self::Postrouting,
            number => Self::Foreign(number),
        }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The instructions of the rule in order.
    pub expressions: Vec<Expression>,
    /// A comment on it. Other user data is not read.
    pub comment: Option<Comment>,
    /// The kernel's number for it, if it was read; not written.
    pub handle: Option<u64>,
}

impl Rule {
    /// A rule without a comment.
    #[must_use]
    pub const fn new(expressions: Vec<Expression>) -> Self {
        Self { expressions, comment: None, handle: None }
    }

    /// Whether it looks something up in this set.
    #[must_use]
    pub fn refers_to(&self, name: &str) -> bool {
        self.expressions
            .iter()
            .any(|expression| matches!(expression, Expression::Lookup { set, .. } if set == name))
    }

    /// The rule with a comment.
    #[must_use]
    pub fn with_comment(self, comment: Comment) -> Self {
        Self { comment: Some(comment), ..self }
    }
}

impl Table {
    /// A table without anything in it.
    #[must_use]
    pub const fn new(name: TableName) -> Self {
        Self { name, comment: None, sets: Vec::new(), chains: Vec::new() }
    }

    /// The table without what the kernel adds or changes, and with its chains in the order of their names:
    /// chains that stay in a table keep their places, and new ones come behind them. Two tables with the same
    /// effect and the same comments are equal in this form.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        self.chains.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.numbered()
    }

    /// The table with its chains in their order: counters are 0, rules have no handles, anonymous sets are
    /// numbered in the order in which rules refer to them, sets and their elements are sorted.
    #[must_use]
    pub fn numbered(mut self) -> Self {
        let anonymous = self.sets.iter().filter(|set| set.anonymous);
        let mut names: BTreeMap<String, Option<String>> = BTreeMap::new();
        names.extend(anonymous.map(|set| (set.name.clone(), None)));
        let mut count = 0;
        for rule in self.chains.iter_mut().flat_map(|chain| &mut chain.rules) {
            rule.handle = None;
            for expression in &mut rule.expressions {
                if let Expression::Counter { packets, bytes } = expression {
                    (*packets, *bytes) = (0, 0);
                }
                if let Expression::Lookup { set, .. } = expression
                    && let Some(name) = names.get_mut(set)
                {
                    let name = name.get_or_insert_with(|| {
                        count += 1;
                        format!("__set{}", count - 1)
                    });
                    set.clone_from(name);
                }
            }
        }
        for set in &mut self.sets {
            if let Some(Some(name)) = names.get(&set.name) {
                set.name.clone_from(name);
            }
            set.elements.sort();
        }
        self.sets.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self
    }
}

impl Chain {
    /// Whether it has the rules of another one already, apart from counters. Of sets, only those in `kept`
    /// are known to be the same.
    pub(super) fn has_rules_of(&self, other: &Self, kept: &BTreeSet<String>) -> bool {
        let is_same = |pair: (&Expression, &Expression)| match pair {
            (Expression::Counter { .. }, Expression::Counter { .. }) => true,
            (Expression::Lookup { set, .. }, _) if !kept.contains(set) => false,
            (one, two) => one == two,
        };
        let have_same = |(one, two): (&Rule, &Rule)| {
            one.comment == two.comment
                && one.expressions.len() == two.expressions.len()
                && one.expressions.iter().zip(&two.expressions).all(is_same)
        };
        self.rules.len() == other.rules.len() && self.rules.iter().zip(&other.rules).all(have_same)
    }
}
