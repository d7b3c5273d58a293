//! Which backend: decided from kernel facts, without side effects.
//!
//! No rule is written and no tool is run to find out: running a legacy tool makes empty legacy tables, which would
//! change the next decision.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::BackendChoice;
use crate::model::{NfTables, Tools, Variant};

/// Everything the decision rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// nf_tables in the kernel.
    pub nf_tables: NfTables,
    /// Legacy tables of this namespace that hold any rules, ours or foreign.
    pub legacy_tables: Vec<String>,
    /// How many chains of ours each variant holds, in both families; nothing for one that holds none.
    pub chains: BTreeMap<Variant, usize>,
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

impl Findings {
    /// Whether rules can be written and read by this variant.
    fn usable(&self, variant: Variant) -> bool {
        let kernel = match variant {
            Variant::Legacy => true,
            Variant::Nft => self.nf_tables != NfTables::Absent,
        };
        kernel && self.tools(variant).is_some()
    }

    /// The usable variant that holds most chains of ours. Both hold some after a run that was killed on its way from
    /// one to the other; neither is taken here if they hold as many.
    fn in_place(&self) -> Option<Variant> {
        let usable = || self.chains.iter().filter(|(variant, chains)| **chains > 0 && self.usable(**variant));
        let most = usable().map(|(_, chains)| chains).max()?;
        let mut holders = usable().filter(|(_, chains)| *chains == most).map(|(variant, _)| *variant);
        let first = holders.next();
        first.filter(|_| holders.next().is_none())
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = match self.nf_tables {
            NfTables::Absent => "the kernel has no nf_tables",
            NfTables::Forbidden => "nf_tables: permission denied",
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

/// The chosen variant and the reason.
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
    /// The requested backend, which is unavailable.
    pub what: String,
    /// The fix.
    pub hint: String,
}

/// Chooses the variant.
///
/// # Errors
///
/// When what was asked for is not there, with what was found and what to do.
pub fn decide(choice: BackendChoice, findings: &Findings) -> Result<Decision, Unavailable> {
    let (nft, legacy) = (findings.usable(Variant::Nft), findings.usable(Variant::Legacy));
    let variant = |variant, why| Ok(Decision { variant, why });
    match choice {
        BackendChoice::IptablesNft if nft => variant(Variant::Nft, "requested"),
        BackendChoice::IptablesLegacy if legacy => variant(Variant::Legacy, "requested"),
        BackendChoice::IptablesNft => Err(unavailable("--backend iptables-nft cannot be used", findings)),
        BackendChoice::IptablesLegacy => {
            Err(unavailable("--backend iptables-legacy cannot be used", findings))
        }
        BackendChoice::Auto | BackendChoice::Iptables => {
            match (findings.in_place(), findings.legacy_tables.as_slice(), nft, legacy) {
                // A foreign rule that comes later is no reason to move.
                (Some(there), ..) => variant(there, "it holds the live rules"),
                (None, [_, ..], _, true) => {
                    variant(Variant::Legacy, "this namespace has legacy rules already")
                }
                (None, _, true, _) => variant(Variant::Nft, "the kernel has nf_tables and the tool is there"),
                (None, _, false, true) => variant(Variant::Legacy, "it is the only usable variant"),
                (None, _, false, false) => Err(unavailable("no variant of iptables can be used", findings)),
            }
        }
    }
}

fn unavailable(what: &str, findings: &Findings) -> Unavailable {
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
    Unavailable { what: format!("{what}; found: {findings}"), hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: [BackendChoice; 2] = [BackendChoice::Auto, BackendChoice::Iptables];

    fn tools(word: &str) -> Tools {
        Tools {
            restore: format!("/sbin/iptables-{word}-restore").into(),
            save: format!("/sbin/iptables-{word}-save").into(),
        }
    }

    /// Both variants can be used; foreign legacy rules are there.
    fn findings(chains: &[(Variant, usize)]) -> Findings {
        Findings {
            nf_tables: NfTables::Present,
            legacy_tables: vec!["nat (IPv4)".to_owned()],
            chains: chains.iter().copied().collect(),
            nft: Some(tools("nft")),
            legacy: Some(tools("legacy")),
        }
    }

    fn chosen(choice: BackendChoice, findings: &Findings) -> Variant {
        decide(choice, findings).unwrap().variant
    }

    #[test]
    fn rules_stay_in_the_variant_that_holds_them() {
        for variant in Variant::ALL {
            let findings = findings(&[(variant, 4)]);
            for choice in AUTO {
                let decision = decide(choice, &findings).unwrap();
                assert_eq!((decision.variant, decision.why), (variant, "it holds the live rules"));
            }
            assert_eq!(chosen(BackendChoice::IptablesLegacy, &findings), Variant::Legacy);
            assert_eq!(chosen(BackendChoice::IptablesNft, &findings), Variant::Nft);
        }
    }

    #[test]
    fn of_two_variants_that_hold_rules_the_more_complete_one_keeps_them() {
        for variant in Variant::ALL {
            // The other one got one family only, or a foreign rule keeps an empty chain there.
            let findings = findings(&[(variant, 8), (variant.other(), 4)]);
            AUTO.iter().for_each(|choice| assert_eq!(chosen(*choice, &findings), variant));
        }
        let both = findings(&[(Variant::Nft, 8), (Variant::Legacy, 8)]);
        AUTO.iter().for_each(|choice| assert_eq!(chosen(*choice, &both), Variant::Legacy));
    }

    #[test]
    fn rules_move_if_their_variant_cannot_be_used_any_more() {
        let without_nft = Findings { nft: None, ..findings(&[(Variant::Nft, 4)]) };
        let without_legacy = Findings { legacy: None, ..findings(&[(Variant::Legacy, 4)]) };
        for choice in AUTO {
            assert_eq!(chosen(choice, &without_nft), Variant::Legacy);
            assert_eq!(chosen(choice, &without_legacy), Variant::Nft);
        }
    }
}
