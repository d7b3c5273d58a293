//! The transitional form of the rules, live while a run moves from one rule set to another.
//!
//! During such a run a packet passes both rule sets. A transition describes the effect of the final rules on
//! connections of the other rule set, and provides rules without that effect.

use super::Exemption;
use crate::model::{FamilyRules, Hook, Mark, Match, Table, TableRules, Target};
use crate::parse::Observed;
use crate::reconcile::{Change, limited_save_mark, marks_in_use};

/// How the rules of one family differ from their final form while a run is under way. The default is: not at
/// all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transition {
    /// Another rule set of ours is live that marks packets, as TPROXY does. A packet that it hands to the
    /// proxy leaves its PREROUTING by ACCEPT, which ends that base chain only: a save rule of the next set
    /// would store the mark in the connection, and every reply would be routed back into the pod. The flows
    /// that need the stored mark, the proxy's own with the caller's address, come in by `lo`; so the save
    /// rule looks at `lo` only.
    pub limit_save_mark: bool,
    /// Connections are open that connection tracking does not know, or knows in the wrong direction: TCP is
    /// exempt until it does; see [`crate::connections`].
    pub exemption: Exemption,
}

impl Transition {
    /// The transition of a run that makes `desired` live in one backend while `others` are live in other
    /// ones; `native`: whether native nftables is another one, and may mark packets as well.
    #[must_use]
    pub fn between<'a>(
        desired: &FamilyRules,
        others: impl IntoIterator<Item = &'a Observed>,
        native: bool,
    ) -> Self {
        let marks_packets = |other: &Observed| {
            other.tables.get(&Table::Mangle).is_some_and(|mangle| !marks_in_use(mangle).is_empty())
        };
        let marks = native || others.into_iter().any(marks_packets);
        let limit_save_mark = marks && saved_marks(desired).next().is_some();
        Self { limit_save_mark, exemption: Exemption::None }
    }

    /// Whether the rules have a form of their own while the run is under way.
    #[must_use]
    pub fn is_needed(self) -> bool {
        self != Self::default()
    }

    /// What is left of it once the rules capture, until the last change of conntrack entries.
    #[must_use]
    pub fn capturing(self) -> Self {
        Self { limit_save_mark: false, exemption: self.exemption.min(Exemption::Correction) }
    }

    /// The change of the live rules of the other backend, before anything else.
    #[must_use]
    pub fn prepare(self, other: &Observed) -> Change {
        let Self { limit_save_mark, exemption: _ } = self;
        if limit_save_mark { Change::limiting_save_mark(other) } else { Change::empty(other.family) }
    }

    /// The rules while the run is under way.
    #[must_use]
    pub fn form(self, desired: &FamilyRules) -> FamilyRules {
        let Self { limit_save_mark, exemption } = self;
        let mut rules = exemption.form(desired);
        if limit_save_mark {
            let mangle = rules.tables.get_mut(&Table::Mangle);
            let hook = mangle.and_then(|mangle| mangle.hooks.get_mut(&Hook::Prerouting));
            for rule in hook.into_iter().flat_map(|hook| hook.head.iter_mut().chain(&mut hook.tail)) {
                if let Some(limited) = limited_save_mark(&rule.statement) {
                    rule.statement = limited;
                }
            }
        }
        rules
    }
}

/// The packet marks that these rules store in connections.
pub fn saved_marks(rules: &FamilyRules) -> impl Iterator<Item = Mark> {
    let rules = rules.tables.get(&Table::Mangle).into_iter().flat_map(TableRules::rules);
    rules.filter_map(|rule| match (rule.statement.target, rule.statement.matcher.mark) {
        (Target::SaveMark, Some(Match::Is(mark))) => Some(mark),
        _ => None,
    })
}
