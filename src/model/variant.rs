//! The variants of iptables: names, tools, and required kernel support.

use std::fmt;
use std::path::PathBuf;

use super::Family;

/// The two kinds of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Programs the kernel's `x_tables`.
    Legacy,
    /// Programs nf_tables.
    Nft,
}

impl Variant {
    /// The variants.
    pub const ALL: [Self; 2] = [Self::Nft, Self::Legacy];

    /// The variant that is not this one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Legacy => Self::Nft,
            Self::Nft => Self::Legacy,
        }
    }

    /// The word in the names of its tools.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Nft => "nft",
        }
    }

    /// The tool that changes one rule.
    #[must_use]
    pub fn tool(self, family: Family) -> String {
        let family = match family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        format!("{family}-{}", self.word())
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iptables-{}", self.word())
    }
}

/// What holds our rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// Tables of iptables, written by its tools.
    Iptables(Variant),
    /// Tables of our own in nf_tables, written over netlink.
    Native,
}

impl Backend {
    /// The variant of iptables; `None` for native nftables.
    #[must_use]
    pub const fn variant(self) -> Option<Variant> {
        match self {
            Self::Iptables(variant) => Some(variant),
            Self::Native => None,
        }
    }

    /// The variants of iptables that do not hold our rules.
    pub fn other_variants(self) -> impl Iterator<Item = Variant> {
        Variant::ALL.into_iter().filter(move |variant| self.variant() != Some(*variant))
    }
}

impl From<Variant> for Backend {
    fn from(variant: Variant) -> Self {
        Self::Iptables(variant)
    }
}

impl fmt::Display for Backend {
    /// The value of `--backend`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iptables(variant) => variant.fmt(f),
            Self::Native => f.write_str("nftables"),
        }
    }
}

/// Whether nf_tables is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfTables {
    /// Not there.
    Absent,
    /// There, but we may not talk to it.
    Forbidden,
    /// There.
    Present,
}

/// The tools of one variant for one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// `…tables-restore`.
    pub restore: PathBuf,
    /// `…tables-save`.
    pub save: PathBuf,
}

impl Tools {
    /// `…tables`, in the same directory as the save tool, without `-save`.
    #[must_use]
    pub fn list(&self) -> PathBuf {
        let name = self.save.file_name().unwrap_or_default().to_string_lossy();
        self.save.with_file_name(name.strip_suffix("-save").unwrap_or(&name))
    }
}
