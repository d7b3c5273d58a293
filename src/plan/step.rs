//! The steps of a plan.

use std::collections::BTreeSet;
use std::fmt;

use crate::connections::conntrack;
use crate::model::{Family, NATIVE_MANGLE, Table, Variant};
use crate::nft::NativeTable;
use crate::reconcile::{Change, RuleByHandle};
use crate::render;
use crate::routing;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Limits the rules of native nftables that store packet marks in connections to packets from `lo`.
    LimitNative,
    /// Deletes tables of native nftables, in one transaction.
    DeleteNative(Vec<String>),
    /// An address, a policy rule or a route.
    Network(routing::Step),
    /// One restore process.
    Restore(Restore),
    /// Replaces the tables of native nftables whole, in one transaction.
    ReplaceNative(ReplaceNative),
    /// Waits until each packet that is between two hooks has passed the last one, so that none has met the
    /// rules before the last step and meets those of the next one.
    AwaitPackets,
    /// Makes conntrack entries for the open TCP connections of these families, between the transitional form
    /// of the rules and the final one.
    TrackConnections(BTreeSet<Family>),
    /// A change of the connection tracking table, after the last commit of rules.
    Conntrack(conntrack::Step),
    /// Deletes rules by handle that are behind identical foreign ones.
    DeleteByHandle(DeleteByHandle),
    /// Sets the alias of `lo`, which is our record; empty, it goes.
    Record(String),
}

/// Rules of iptables-nft that only their handle distinguishes from identical foreign ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteByHandle {
    /// The family of the rules.
    pub family: Family,
    /// The table of the rules.
    pub table: Table,
    /// The rules.
    pub by_handle: Vec<RuleByHandle>,
}

/// The tables of native nftables from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaceNative {
    /// The tables that are there from now on.
    pub tables: Vec<NativeTable>,
    /// Live ones that go in the same transaction.
    pub delete: Vec<String>,
}

impl ReplaceNative {
    /// Takes out the table that is written as this one of iptables; `None` if it is not written.
    #[must_use]
    pub fn take(&mut self, table: Table) -> Option<Self> {
        let taken: Vec<_> = self.tables.extract_if(.., |native| native.table == table).collect();
        (!taken.is_empty()).then_some(Self { tables: taken, delete: Vec::new() })
    }
}

/// A change that a restore tool makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// Whose tool.
    pub variant: Variant,
    /// What the tool writes.
    pub change: Change,
}

impl Restore {
    /// Which family's tool.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.change.family
    }

    /// The contents of the rules file.
    #[must_use]
    pub fn text(&self) -> String {
        render::restore(&self.change)
    }

    /// Whether a foreign rule that is added meanwhile could be deleted in the place of ours: then nothing may
    /// change between reading and writing. In iptables-nft that is so only where rules are deleted by their
    /// place.
    #[must_use]
    pub fn by_position(&self) -> bool {
        self.change.depends_on_positions()
            || (self.variant == Variant::Legacy && self.change.may_match_foreign_rule())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitNative => {
                write!(
                    f,
                    "limit the rules of the nftables table inet {NATIVE_MANGLE} that save marks to packets from lo"
                )
            }
            Self::DeleteNative(tables) => {
                write!(f, "delete the nftables tables inet {}", tables.join(", inet "))
            }
            Self::ReplaceNative(ReplaceNative { tables, delete }) => {
                let names: Vec<_> = tables.iter().map(NativeTable::name).collect();
                write!(f, "nftables: replace the tables inet {} in one transaction", names.join(", inet "))?;
                if !delete.is_empty() {
                    write!(f, ", delete inet {}", delete.join(", inet "))?;
                }
                Ok(())
            }
            Self::AwaitPackets => f.write_str("wait for the packets that are between two tables"),
            Self::Network(step) => step.fmt(f),
            Self::Conntrack(step) => step.fmt(f),
            Self::TrackConnections(families) => {
                let families: Vec<_> = families.iter().map(Family::to_string).collect();
                write!(f, "create conntrack entries: open {} TCP connections", families.join(" and "))
            }
            Self::Record(alias) => write!(f, "ip link set dev lo alias '{alias}'"),
            Self::DeleteByHandle(DeleteByHandle { family, table, by_handle }) => {
                let nft_family = match family {
                    Family::V4 => "ip",
                    Family::V6 => "ip6",
                };
                let commands = by_handle.iter().map(|RuleByHandle { hook, handle, text: _ }| {
                    let (table, hook) = (table.name(), hook.name());
                    format!("nft delete rule {nft_family} {table} {hook} handle {handle}")
                });
                f.write_str(&commands.collect::<Vec<_>>().join("; "))
            }
            Self::Restore(restore) => {
                let mut tables: Vec<_> =
                    restore.change.tables.iter().map(|change| change.table.name()).collect();
                // A table may be written in several commits.
                tables.dedup();
                let tool = restore.variant.tool(restore.family());
                write!(f, "{tool}-restore --noflush (tables {})", tables.join(", "))
            }
        }
    }
}
