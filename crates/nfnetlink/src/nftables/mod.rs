//! nf_tables, typed: what is written and what is read back are the same types.
//!
//! ```no_run
//! use nfnetlink::nftables::{
//!     Base, Batch, Chain, ChainKind, Client, Expression, Family, Hook, Rule, Table, TableName, Verdict,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let name = TableName::new(Family::Inet, "example");
//! let count = Rule::new(vec![Expression::counter(), Expression::Verdict(Verdict::Accept)]);
//! let base = Base { kind: ChainKind::Filter, hook: Hook::Output, priority: 0, policy: Verdict::Accept };
//! let table = Table {
//!     chains: vec![Chain { name: "output".to_owned(), base: Some(base), rules: vec![count] }],
//!     ..Table::new(name.clone())
//! };
//! let mut batch = Batch::new();
//! batch.replace_table(&table);
//! let mut client = Client::open()?;
//! client.commit(&batch)?;
//! assert_eq!(client.table(&name)?.map(|live| live.normalized()), Some(table));
//! # Ok(())
//! # }
//! ```
//!
//! User data is limited to comments and the byte order of set keys, which every version of `nft` since 0.9
//! reads: later kinds make older versions crash when they list the rules.

mod batch;
mod changes;
mod client;
mod comment;
mod decode;
mod encode;
mod expression;
mod filter;
mod interval;
mod members;
mod number;
mod object;
mod set;

use std::fmt;

pub use batch::{Batch, CommitError, Origin};
pub use changes::{Change, Changes};
pub use client::Client;
pub use comment::Comment;
pub use decode::{Object, RawElements};
pub use expression::{
    Base as PayloadBase, CtKey, Expression, MetaKey, Operator, Register, SocketKey, Verdict,
};
pub use interval::merge;
pub use members::{Member, Members};
pub use object::{Base, Chain, ChainKind, Hook, Rule, Table};
pub use set::{Elements, KeyType, Set};

/// The family of a table. The families `arp`, `bridge` and `netdev` are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Tables for IPv4 and IPv6.
    Inet,
    /// IPv4: where iptables-nft keeps its rules.
    Ip,
    /// IPv6: where ip6tables-nft keeps its rules.
    Ip6,
}

impl Family {
    /// The number in `struct nfgenmsg`.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Ip6 => 10,
        }
    }

    /// The family with this number, if it is supported.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Inet),
            2 => Some(Self::Ip),
            10 => Some(Self::Ip6),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        })
    }
}

/// A table's full name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// The family of the table.
    pub family: Family,
    /// The name of the table within the family.
    pub name: String,
}

impl TableName {
    /// The table of this name.
    #[must_use]
    pub fn new(family: Family, name: impl Into<String>) -> Self {
        Self { family, name: name.into() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}
