//! Base chains of other programs' nftables tables, in which a packet is before it meets our rules.
//!
//! Packets pass the base chains of a hook by priority. `accept` ends one of them only, so what keeps a packet from ours is
//! that it is dropped, queued, not tracked, or redirected by another rule: the first translation of a connection counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nfnetlink::nftables::{
    Base, Chain, ChainKind, Expression, Family as NftFamily, Hook as NftHook, Table, Verdict,
};

use crate::model::{self, Backend, Family, FamilyRules, Hook, Variant};

/// The priority of our rules of nat, with iptables and native nftables.
const NAT_PRIORITY: i32 = -100;
/// Connection tracking has this priority: what is not tracked before gets no translation.
const CONNTRACK_PRIORITY: i32 = -200;

/// A base chain that may keep packets from ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    table: String,
    chain: String,
    hook: Hook,
    priority: i32,
    /// The priority of our last rules in the hook.
    ours: i32,
    does: Vec<String>,
}

impl fmt::Display for BaseChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, chain, hook, priority, ours, does } = self;
        let (decides, order) = if priority == ours {
            ("may decide before ours", ", the same as ours: the chain that was made last is first")
        } else {
            ("decides before ours", "")
        };
        let hook = hook.name().to_lowercase();
        write!(
            f,
            "a foreign base chain {decides}: {table} {chain} ({hook}, priority {priority}{order}): {}: packets that it takes \
             are not captured; give it a priority above {ours} or delete it, if that is not meant",
            does.join(", ")
        )
    }
}

/// The base chains that may decide before the desired rules of a backend. `tables` are those of other programs.
#[must_use]
pub fn before_ours(
    desired: &BTreeMap<Family, FamilyRules>,
    backend: Backend,
    tables: &[Table],
) -> Vec<BaseChain> {
    let mut found = Vec::new();
    for table in tables {
        for chain in table.chains.iter().filter(|chain| !is_of_backend(table, chain, backend)) {
            let Some(base) = &chain.base else { continue };
            let Some(hook) = hook_of(base) else { continue };
            let Some(ours) = Ours::of(desired, table, hook) else { continue };
            let mut does = BTreeSet::new();
            if base.policy == Verdict::Drop {
                does.insert("policy drop".to_owned());
            }
            collect(table, chain, &mut does, &mut BTreeSet::new());
            let does: Vec<String> = does.into_iter().filter(|word| ours.is_behind(word, base)).collect();
            if !does.is_empty() {
                found.push(BaseChain {
                    table: table.name.to_string(),
                    chain: chain.name.clone(),
                    hook,
                    priority: base.priority,
                    ours: ours.last,
                    does,
                });
            }
        }
    }
    found
}

/// The shared chains of iptables-nft are examined rule by rule where it is the backend.
fn is_of_backend(table: &Table, chain: &Chain, backend: Backend) -> bool {
    let is_shared = Hook::ALL.iter().any(|hook| hook.name() == chain.name);
    backend == Backend::Iptables(Variant::Nft) && is_of_iptables(table) && is_shared
}

/// Whether iptables-nft writes to this table.
fn is_of_iptables(table: &Table) -> bool {
    table.name.family != NftFamily::Inet
        && model::Table::ALL.iter().any(|known| known.name() == table.name.name)
}

const fn hook_of(base: &Base) -> Option<Hook> {
    match base.hook {
        NftHook::Prerouting => Some(Hook::Prerouting),
        NftHook::Output => Some(Hook::Output),
        NftHook::Input | NftHook::Forward | NftHook::Postrouting | NftHook::Foreign(_) => None,
    }
}

/// Our rules in a hook.
struct Ours {
    /// The priority of the last ones.
    last: i32,
    /// Whether connections are redirected.
    nat: bool,
}

impl Ours {
    fn of(desired: &BTreeMap<Family, FamilyRules>, table: &Table, hook: Hook) -> Option<Self> {
        let meets = |family: &Family| match table.name.family {
            NftFamily::Inet => true,
            NftFamily::Ip => *family == Family::V4,
            NftFamily::Ip6 => *family == Family::V6,
        };
        let rules = desired.iter().filter(|(family, _)| meets(family)).flat_map(|(_, rules)| &rules.tables);
        let in_hook = rules
            .filter(|(_, rules)| rules.hooks.get(&hook).is_some_and(|rules| rules.iter().next().is_some()));
        let priorities: BTreeSet<i32> = in_hook.map(|(table, _)| priority(*table)).collect();
        Some(Self { last: *priorities.last()?, nat: priorities.contains(&NAT_PRIORITY) })
    }

    /// Whether what a rule does there comes before ours.
    fn is_behind(&self, does: &str, base: &Base) -> bool {
        match does {
            // Only the chains of nat translate, and only they can be after ours in the same place.
            "dnat" | "redirect" => self.nat && base.kind == ChainKind::Nat && base.priority <= NAT_PRIORITY,
            "notrack" => self.nat && base.priority < CONNTRACK_PRIORITY,
            _ => base.priority <= self.last,
        }
    }
}

const fn priority(table: model::Table) -> i32 {
    match table {
        model::Table::Raw => -300,
        model::Table::Mangle => -150,
        model::Table::Nat => NAT_PRIORITY,
    }
}

/// What the rules of a chain, and of those that they jump to, do to packets.
fn collect<'a>(
    table: &'a Table,
    chain: &'a Chain,
    does: &mut BTreeSet<String>,
    seen: &mut BTreeSet<&'a str>,
) {
    for expression in chain.rules.iter().flat_map(|rule| &rule.expressions) {
        does.extend(word(expression));
        let Expression::Verdict(Verdict::Jump(name) | Verdict::Goto(name)) = expression else { continue };
        // Rules of an earlier run of ours leave in this one.
        let ours = is_of_iptables(table) && model::Chain::from_name(name).is_some();
        let next = table.chains.iter().find(|next| next.name == *name).filter(|_| !ours);
        if let Some(next) = next.filter(|_| seen.insert(name)) {
            collect(table, next, does, seen);
        }
    }
}

/// What an expression does, if it keeps a packet from later rules.
fn word(expression: &Expression) -> Option<String> {
    let word = match expression {
        Expression::Verdict(Verdict::Drop) => "drop",
        Expression::Redirect { .. } => "redirect",
        Expression::Tproxy { .. } => "tproxy",
        Expression::Foreign { name, data } => match name.as_str() {
            "redir" => "redirect",
            // The hooks in question have no other translation.
            "nat" => "dnat",
            "reject" | "queue" | "notrack" | "synproxy" | "fwd" | "tproxy" => name,
            "immediate" => "verdict",
            "lookup" if has_verdicts(data) => "verdict map",
            "target" => return of_target(data),
            _ => return None,
        },
        Expression::Meta { .. }
        | Expression::SetMeta { .. }
        | Expression::Payload { .. }
        | Expression::Bitwise { .. }
        | Expression::Compare { .. }
        | Expression::Range { .. }
        | Expression::Lookup { .. }
        | Expression::Ct { .. }
        | Expression::SetCt { .. }
        | Expression::Counter { .. }
        | Expression::Immediate { .. }
        | Expression::Verdict(_)
        | Expression::Socket { .. } => return None,
    };
    Some(word.to_owned())
}

/// Whether a look-up gives a verdict: its destination is register 0.
fn has_verdicts(data: &[u8]) -> bool {
    const DESTINATION: u16 = 3;
    nfnetlink::Attributes::new(data).of(DESTINATION).and_then(|register| register.be32()) == Some(0)
}

/// A target of iptables, as iptables-nft writes it.
fn of_target(data: &[u8]) -> Option<String> {
    const NAME: u16 = 1;
    const INFO: u16 = 3;
    /// `XT_CT_NOTRACK`, in the first byte of what CT is given.
    const NOTRACK: u8 = 1;
    let attributes = nfnetlink::Attributes::new(data);
    let word = match attributes.of(NAME)?.text().as_str() {
        "DNAT" | "NETMAP" => "dnat",
        "REDIRECT" => "redirect",
        "REJECT" => "reject",
        "NFQUEUE" => "queue",
        "TPROXY" => "tproxy",
        "SYNPROXY" => "synproxy",
        "NOTRACK" => "notrack",
        "CT" if attributes.of(INFO)?.byte()? & NOTRACK != 0 => "notrack",
        _ => return None,
    };
    Some(word.to_owned())
}
