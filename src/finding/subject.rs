//! What a finding is about, and the command that removes it.

use std::sync::Arc;

use crate::live_rules::{LiveRule, NftPlace};
use crate::model::{Backend, Family, NATIVE_TABLES, PolicyRule, Variant};
use crate::text::shell_words;

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
    /// The policy of a base chain, which ends what no rule of it does.
    Policy {
        /// The table, as in [`RuleId::table`].
        table: String,
        /// The name of the chain.
        chain: String,
    },
    /// An interface, by its name.
    Interface(String),
    /// A policy rule.
    PolicyRule(PolicyRule),
    /// A route, in the words of `ip route`.
    Route(String),
    /// A state of the pod, by the sentence about it.
    Condition(String),
}

/// A rule and where it is. Two are equal if they are in the same chain and have the same words: who tells
/// them may not know the handle.
#[derive(Clone, Debug, Eq)]
pub struct RuleId {
    /// The table: `nat`; `iptables-legacy nat` for another variant than that of our rules; `ip nat` in
    /// nftables.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The words of the rule, which is the only one of the chain with these words, or like the others.
    pub words: String,
    /// Whether iptables cannot delete it from its own table.
    pub of_nftables: bool,
    /// Where nftables has it, if that is known.
    pub place: Option<Arc<NftPlace>>,
}

impl PartialEq for RuleId {
    fn eq(&self, other: &Self) -> bool {
        let Self { table, chain, words, of_nftables, place: _ } = self;
        *table == other.table
            && *chain == other.chain
            && *words == other.words
            && *of_nftables == other.of_nftables
    }
}

impl RuleId {
    /// A rule of a chain.
    #[must_use]
    pub fn of(table: &str, chain: &str, rule: &LiveRule) -> Self {
        Self {
            table: table.to_owned(),
            chain: chain.to_owned(),
            words: rule.words().into_owned(),
            of_nftables: rule.is_of_nftables(),
            place: rule.place().cloned(),
        }
    }

    /// The command that deletes it. For a rule of nftables that takes its handle. A run writes tables of
    /// ours without it.
    fn deletion(&self, family: Option<Family>, variant: Option<Variant>) -> String {
        let Self { table, chain, words, of_nftables, place } = self;
        if let Some(NftPlace { table, chain, handle }) = place.as_deref() {
            let is_ours = table.strip_prefix("inet ").is_some_and(|name| NATIVE_TABLES.contains(&name));
            let run = if is_ours { ", or run `istio-iptables` with the pod's options" } else { "" };
            let [table, chain] = [table, chain].map(|name| shell_words(name));
            return format!("`nft delete rule {table} {chain} handle {handle}`{run}");
        }
        let [chain, words] = [chain, words].map(|text| shell_words(text));
        let of_v6 = |tool: &str| {
            if family == Some(Family::V6) { tool.replacen("ip", "ip6", 1) } else { tool.to_owned() }
        };
        let of_nft = |table: &str| {
            format!(
                "`nft -a list chain {table} {chain}` lists the rule's handle N; `nft delete rule {table} {chain} handle N`"
            )
        };
        match table.split_once(' ') {
            None if *of_nftables => of_nft(&format!("{} {table}", of_v6("ip"))),
            Some((tool, table)) if *of_nftables && tool == Variant::Nft.to_string() => {
                of_nft(&format!("{} {table}", of_v6("ip")))
            }
            None => {
                // Where both variants are installed, the plain name is that of the nft variant.
                let legacy = if variant == Some(Variant::Legacy) { "-legacy" } else { "" };
                format!("`{}{legacy} -t {table} -D {chain} {words}`", of_v6("iptables"))
            }
            Some((tool, table)) if Variant::ALL.iter().any(|variant| variant.to_string() == tool) => {
                format!("`{} -t {table} -D {chain} {words}`", of_v6(tool))
            }
            Some(_) => of_nft(table),
        }
    }
}

impl Subject {
    /// Whether this is a chain, and the other one its policy or a rule in it, where `backend` holds ours:
    /// rules of its own tables are named without it.
    pub(super) fn has(&self, other: &Self, backend: Backend) -> bool {
        let Self::Chain { table, chain } = self else { return false };
        let Some((in_table, in_chain)) = other.place() else { return false };
        let of_iptables = || table.strip_prefix("ip ").or_else(|| table.strip_prefix("ip6 "));
        let is_in_table =
            table == in_table || backend == Variant::Nft.into() && of_iptables() == Some(in_table);
        is_in_table && chain == in_chain
    }

    /// Whether this is a policy for packets of one family.
    #[must_use]
    pub fn is_policy_of_family(&self) -> bool {
        let Self::Policy { table, .. } = self else { return false };
        !matches!(table.split_once(' '), Some(("inet", _)))
    }

    /// The table and the chain of a rule or a policy.
    const fn place(&self) -> Option<(&str, &str)> {
        match self {
            Self::Rule(RuleId { table, chain, .. }) | Self::Policy { table, chain } => {
                Some((table.as_str(), chain.as_str()))
            }
            Self::Chain { .. }
            | Self::Interface(_)
            | Self::PolicyRule(_)
            | Self::Route(_)
            | Self::Condition(_) => None,
        }
    }

    /// The table that it is in, as in [`RuleId::table`].
    #[must_use]
    pub(super) fn table(&self) -> Option<&str> {
        match self {
            Self::Chain { table, .. } => Some(table),
            Self::Rule(_)
            | Self::Policy { .. }
            | Self::Interface(_)
            | Self::PolicyRule(_)
            | Self::Route(_)
            | Self::Condition(_) => self.place().map(|(table, _)| table),
        }
    }

    /// The command that removes it, if it is something that can be removed.
    #[must_use]
    pub fn removal(&self, family: Option<Family>, variant: Option<Variant>) -> Option<String> {
        match self {
            Self::Rule(rule) => Some(rule.deletion(family, variant)),
            Self::Chain { table, chain } => {
                Some(format!("`nft list chain {table} {chain}` shows its rules: delete or limit them"))
            }
            Self::PolicyRule(rule) => {
                let tool = if family == Some(Family::V6) { "ip -6" } else { "ip" };
                let words = rule.to_string().replacen(':', "", 1);
                Some(format!("`{tool} rule del pref {}`", shell_words(&words)))
            }
            Self::Route(_) => {
                let tool = if family == Some(Family::V6) { "ip -6" } else { "ip" };
                Some(format!(
                    "`{tool} route show table all` lists the routes: correct the one that the cause names"
                ))
            }
            Self::Policy { .. } | Self::Interface(_) | Self::Condition(_) => None,
        }
    }
}
