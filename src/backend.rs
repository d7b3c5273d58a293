//! Which backend: decided from kernel facts, without side effects.
//!
//! No rule is written and no tool is run to find out: running a legacy tool makes empty legacy tables, which would
//! change the next decision.

use std::fmt;
use std::path::PathBuf;

use crate::config::BackendChoice;

/// The two kinds of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Programs the kernel's `x_tables`.
    Legacy,
    /// Programs nf_tables.
    Nft,
}

impl Variant {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Nft, Self::Legacy];

    /// The other one.
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
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iptables-{}", self.word())
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

/// Everything the decision rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// nf_tables in the kernel.
    pub nf_tables: NfTables,
    /// Legacy tables of this namespace that hold rules of anybody.
    pub legacy_tables: Vec<String>,
    /// IPv4 tools of the nft variant.
    pub nft: Option<Tools>,
    /// IPv4 tools of the legacy variant.
    pub legacy: Option<Tools>,
}

impl Findings {
    const fn tools(&self, variant: Variant) -> Option<&Tools> {
        match variant {
            Variant::Legacy => self.legacy.as_ref(),
            Variant::Nft => self.nft.as_ref(),
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = match self.nf_tables {
            NfTables::Absent => "the kernel has no nf_tables",
            NfTables::Forbidden => "nf_tables cannot be asked (no permission)",
            NfTables::Present => "the kernel has nf_tables",
        };
        write!(f, "{kernel}; ")?;
        for variant in Variant::ALL {
            match self.tools(variant) {
                Some(tools) => write!(f, "{variant}: {}; ", tools.restore.display())?,
                None => write!(f, "no {variant}-restore in PATH; ")?,
            }
        }
        match self.legacy_tables.as_slice() {
            [] => f.write_str("no legacy rules in this namespace"),
            tables => write!(f, "legacy rules in {}", tables.join(", ")),
        }
    }
}

/// What was chosen, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The variant.
    pub variant: Variant,
    /// Half a sentence.
    pub why: &'static str,
}

/// Nothing can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// What was asked for and is not to be had.
    pub what: String,
    /// What to do.
    pub hint: String,
}

/// Chooses the variant.
///
/// # Errors
///
/// When what was asked for is not there, with what was found and what to do.
pub fn decide(choice: BackendChoice, findings: &Findings) -> Result<Decision, Unavailable> {
    let nft = findings.nft.is_some() && findings.nf_tables != NfTables::Absent;
    let legacy = findings.legacy.is_some();
    let variant = |variant, why| Ok(Decision { variant, why });
    match choice {
        BackendChoice::IptablesNft if nft => variant(Variant::Nft, "asked for"),
        BackendChoice::IptablesLegacy if legacy => variant(Variant::Legacy, "asked for"),
        BackendChoice::IptablesNft => Err(unavailable("iptables-nft was asked for", findings)),
        BackendChoice::IptablesLegacy => Err(unavailable("iptables-legacy was asked for", findings)),
        BackendChoice::Auto | BackendChoice::Iptables => {
            match (findings.legacy_tables.as_slice(), nft, legacy) {
                ([_, ..], _, true) => variant(Variant::Legacy, "this namespace has legacy rules already"),
                (_, true, _) => variant(Variant::Nft, "the kernel has nf_tables and the tool is there"),
                (_, false, true) => variant(Variant::Legacy, "it is the only variant that can be used here"),
                (_, false, false) => Err(unavailable("no variant of iptables can be used", findings)),
            }
        }
    }
}

fn unavailable(asked: &str, findings: &Findings) -> Unavailable {
    let hint = match (findings.nf_tables, &findings.nft) {
        (NfTables::Absent, Some(_)) => {
            "load the kernel module nf_tables on the node (`modprobe nf_tables`), or put iptables-legacy into the image"
        }
        (NfTables::Absent, None) => {
            "put iptables-legacy into the image, and load the module ip_tables on the node"
        }
        (NfTables::Forbidden | NfTables::Present, _) => {
            "put the package `iptables` into the image, or add the folder of iptables-nft-restore to PATH"
        }
    };
    Unavailable { what: format!("{asked}, but: {findings}"), hint: hint.to_owned() }
}
