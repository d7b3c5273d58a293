//! Rules of native nftables, in a form from which both the text for `nft -f` and the netlink messages are
//! made.
//!
//! The rules of both families share tables of the family `inet`. A packet meets, in the same order, the rules
//! that its family has with iptables:
//!
//! - A rule of both families exists once. A rule of a single family tests the family, unless packets of the
//!   other one cannot reach its chain.
//! - `! --uid-owner` of iptables matches packets without a socket, `meta skuid !=` does not: a negated owner
//!   is never written (`owners`).
//! - `TPROXY` of iptables drops a packet if no proxy listens, `tproxy` passes it: a `drop` follows it.
//! - Rules that differ in one port, range, interface or owner are one rule with a set (`lists`).

mod combine;
mod counters;
mod encode;
mod lists;
mod live_tables;
mod lockdown;
mod lower;
mod owners;
mod rule_family;
mod sets;
mod text;
mod types;

#[cfg(test)]
mod tests;

use crate::model::{FamilyRules, PerFamily};

pub use counters::carry_counters;
pub use encode::encode;
pub use live_tables::{LiveTables, SECOND, foreign_packets};
pub use lockdown::{LOCKDOWN_TABLES, is_lockdown_table, lockdown_tables};
pub use rule_family::family_of;
pub use text::text;
pub use types::{
    Action, ChainName, Field, NativeChain, NativeRule, NativeTable, Operand, Test, Value, Values,
};

/// The tables that hold the rules of all families, in the order in which a packet meets them. Families that
/// get no rules may be absent.
#[must_use]
pub fn tables(rules: &PerFamily<FamilyRules>) -> Vec<NativeTable> {
    combine::tables(rules).into_iter().map(lower::table).collect()
}
