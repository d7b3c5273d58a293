//! Which tables and chains of nf_tables the backend examines rule by rule, and which are other programs'.

use nfnetlink::nftables::{Base, Chain, Family as NftFamily, Hook as NftHook, Table};

use crate::model::{self, Backend, Hook, Variant};
use crate::parse::{INPUT, POSTROUTING};

/// The shared chains of iptables-nft, and INPUT, are examined rule by rule where it is the backend.
#[must_use]
pub fn is_of_backend(table: &Table, chain: &Chain, backend: Backend) -> bool {
    let is_shared = [INPUT, POSTROUTING].contains(&chain.name.as_str())
        || Hook::ALL.iter().any(|hook| hook.name() == chain.name);
    is_listed(table, backend) && is_shared
}

/// Whether the backend lists the built-in chains of a table, rule by rule.
pub(super) fn is_listed(table: &Table, backend: Backend) -> bool {
    backend == Backend::Iptables(Variant::Nft) && is_of_iptables(table)
}

/// The chains of a table without those of ours, which a move between backends has yet to delete.
pub(super) fn foreign_chains(table: &Table) -> impl Iterator<Item = &Chain> {
    let is_ours =
        move |chain: &Chain| is_of_iptables(table) && model::Chain::from_name(&chain.name).is_some();
    table.chains.iter().filter(move |chain| !is_ours(chain))
}

/// Whether iptables-nft writes to this table.
pub(super) fn is_of_iptables(table: &Table) -> bool {
    table.name.family != NftFamily::Inet
        && model::Table::ALL.iter().any(|known| known.name() == table.name.name)
}

/// One of our hooks, or that of packets for this machine or of those that leave, where we have no rules.
pub(super) fn hook_of(base: &Base) -> Option<(Option<Hook>, &'static str)> {
    match base.hook {
        NftHook::Prerouting => Some((Some(Hook::Prerouting), "prerouting")),
        NftHook::Output => Some((Some(Hook::Output), "output")),
        NftHook::Input => Some((None, "input")),
        NftHook::Postrouting => Some((None, "postrouting")),
        NftHook::Forward | NftHook::Foreign(_) => None,
    }
}
