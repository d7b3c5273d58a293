//! Chooses the backend (iptables-nft, iptables-legacy or native nftables) from kernel facts.
//!
//! Detection writes no rule and runs no tool: running a legacy tool creates empty legacy tables, which would
//! change the next decision. If both native nftables and iptables-legacy are possible, a table that exists
//! only within one transaction shows whether the kernel supports native nftables.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::BackendChoice;
use crate::model::{Backend, NfTables, Tools, Variant};

/// Everything the decision rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// nf_tables in the kernel.
    pub nf_tables: NfTables,
    /// Legacy tables of this namespace that hold any rules, ours or foreign.
    pub legacy_tables: Vec<String>,
    /// The number of our chains that each variant holds, in both families; nothing for one that holds none.
    pub chains: BTreeMap<Variant, usize>,
    /// The number of chains in our own native tables.
    pub native_chains: usize,
    /// Whether the kernel is a sandbox's, such as gVisor.
    pub is_sandbox: bool,
    /// Whether rules are only read, which needs no tool.
    pub is_read_only: bool,
    /// The backends that the kernel refused when they were tried, or is too old for.
    pub refused: BTreeMap<Backend, Refusal>,
    /// IPv4 tools of the nft variant, if the decision depends on them ([`Self::needs_tools`]).
    pub nft: Option<Tools>,
    /// IPv4 tools of the legacy variant, if the decision depends on them.
    pub legacy: Option<Tools>,
}

/// Why the kernel refused a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What failed.
    pub error: String,
    /// The missing kernel modules, as far as they are known.
    pub modules: Vec<&'static str>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.modules.as_slice() {
            [] => f.write_str(&self.error),
            modules => write!(f, "missing kernel modules: {}", modules.join(", ")),
        }
    }
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
        kernel && self.tools(variant).is_some() && !self.refused.contains_key(&variant.into())
    }

    /// Whether rules of this variant can be read, and written if that is needed. Where it holds rules of
    /// ours, the right ones need no tool, and to move others needs the same tool as to change them.
    fn serves(&self, variant: Variant) -> bool {
        let is_readable = match variant {
            Variant::Legacy => true,
            Variant::Nft => self.nf_tables == NfTables::Present,
        };
        let holds_ours = self.chains.get(&variant).is_some_and(|chains| *chains > 0);
        let needs_no_tool = self.is_read_only || holds_ours && !self.refused.contains_key(&variant.into());
        needs_no_tool && is_readable || self.usable(variant)
    }

    /// The backend that holds most chains of ours, of those that can be used; of several that hold as many,
    /// iptables-legacy before iptables-nft, and that before native nftables. Two hold some after a run that
    /// was killed on its way from one to the other.
    fn in_place(&self, choice: BackendChoice) -> Option<Backend> {
        let variants = [Variant::Legacy, Variant::Nft].into_iter().filter(|variant| self.serves(*variant));
        let chains = |variant| self.chains.get(&variant).copied().unwrap_or_default();
        let variants = variants.map(|variant| (Backend::Iptables(variant), chains(variant)));
        let native = (Backend::Native, self.native_chains);
        let native = Some(native).filter(|_| choice == BackendChoice::Auto && self.native_usable());
        let holders: Vec<_> = variants.chain(native).filter(|(_, chains)| *chains > 0).collect();
        let most = holders.iter().map(|(_, chains)| *chains).max()?;
        holders.into_iter().find(|(_, chains)| *chains == most).map(|(backend, _)| backend)
    }

    fn native_usable(&self) -> bool {
        self.nf_tables == NfTables::Present && !self.refused.contains_key(&Backend::Native)
    }

    /// Whether the decision depends on which tools there are.
    #[must_use]
    pub fn needs_tools(&self, choice: BackendChoice) -> bool {
        let native = match choice {
            BackendChoice::Nftables => true,
            BackendChoice::Auto => self.native_chains > 0,
            BackendChoice::Iptables | BackendChoice::IptablesNft | BackendChoice::IptablesLegacy => false,
        };
        let alone = self.chains.values().all(|chains| *chains == 0);
        !(native && alone && self.native_usable())
    }

    /// Whether it takes a try to find out if native nftables is to be used: it comes before iptables-legacy.
    #[must_use]
    pub fn needs_try(&self, choice: BackendChoice) -> bool {
        choice == BackendChoice::Auto
            && self.native_usable()
            && self.usable(Variant::Legacy)
            && !self.usable(Variant::Nft)
            && self.native_chains == 0
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
                Some(tools) => write!(f, "{variant}: {}", tools.restore.display())?,
                None => write!(f, "no {variant}-restore in PATH")?,
            }
            if let Some(refusal) = self.refused.get(&variant.into()) {
                write!(f, ", {refusal}")?;
            }
            f.write_str("; ")?;
        }
        if let Some(refusal) = self.refused.get(&Backend::Native) {
            write!(f, "native nftables: {refusal}; ")?;
        }
        match self.legacy_tables.as_slice() {
            [] => f.write_str("no legacy rules in this namespace"),
            tables => write!(f, "legacy rules in {}", tables.join(", ")),
        }
    }
}

/// The chosen backend and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The backend.
    pub backend: Backend,
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

/// Chooses the backend.
///
/// # Errors
/// When what was asked for is not there, with what was found and what to do.
pub fn decide(choice: BackendChoice, findings: &Findings) -> Result<Decision, Unavailable> {
    let (nft, legacy) = (findings.usable(Variant::Nft), findings.usable(Variant::Legacy));
    let native = findings.native_usable();
    let chosen = |backend: Backend, why| Ok(Decision { backend, why });
    match choice {
        BackendChoice::IptablesNft if findings.serves(Variant::Nft) => {
            chosen(Variant::Nft.into(), "requested")
        }
        BackendChoice::IptablesLegacy if findings.serves(Variant::Legacy) => {
            chosen(Variant::Legacy.into(), "requested")
        }
        BackendChoice::Nftables if native => chosen(Backend::Native, "requested"),
        BackendChoice::IptablesNft => Err(unavailable("--backend iptables-nft cannot be used", findings)),
        BackendChoice::IptablesLegacy => {
            let unavailable = unavailable("--backend iptables-legacy cannot be used", findings);
            // The other variant is of no use.
            let is_lacking = findings.legacy.is_none() && !findings.is_sandbox && loading(findings).is_none();
            Err(if is_lacking { Unavailable { hint: LEGACY.to_owned(), ..unavailable } } else { unavailable })
        }
        BackendChoice::Nftables => Err(unavailable("--backend nftables cannot be used", findings)),
        BackendChoice::Auto | BackendChoice::Iptables => {
            let native = native && choice == BackendChoice::Auto;
            match (findings.in_place(choice), findings.legacy_tables.as_slice()) {
                // A foreign rule that is added later does not move the rules.
                (Some(there), _) => chosen(there, "it holds the live rules"),
                (None, [_, ..]) if legacy => {
                    chosen(Variant::Legacy.into(), "this namespace has legacy rules already")
                }
                (None, _) if nft => {
                    chosen(Variant::Nft.into(), "the kernel has nf_tables and the tool is there")
                }
                (None, _) if native && findings.nft.is_some() => {
                    chosen(Backend::Native, "iptables-nft cannot be used, and the kernel has nf_tables")
                }
                (None, _) if native => {
                    chosen(Backend::Native, "the kernel has nf_tables, and no iptables-nft is in PATH")
                }
                (None, _) if findings.serves(Variant::Legacy) => {
                    chosen(Variant::Legacy.into(), "it is the only usable variant")
                }
                (None, _) if choice == BackendChoice::Iptables => {
                    Err(unavailable("no variant of iptables can be used", findings))
                }
                (None, _) => Err(unavailable("no backend can be used", findings)),
            }
        }
    }
}

/// The fix for a lack of iptables-legacy.
const LEGACY: &str =
    "put iptables-legacy into the image, or add the folder of iptables-legacy-restore to PATH";

fn unavailable(what: &str, findings: &Findings) -> Unavailable {
    if findings.is_sandbox {
        let hint = if findings.legacy.is_some() {
            "the kernel is a sandbox's, and gVisor has iptables-legacy only: use --backend auto"
        } else {
            "the kernel is a sandbox's, and gVisor has iptables-legacy only: put iptables-legacy into the image, or add the \
             folder of iptables-legacy-restore to PATH"
        };
        return Unavailable { what: format!("{what}; found: {findings}"), hint: hint.to_owned() };
    }
    if let Some(hint) = loading(findings) {
        return Unavailable { what: format!("{what}; found: {findings}"), hint };
    }
    let refused = findings.refused.contains_key(&Backend::Native);
    let hint = match (findings.nf_tables, &findings.nft) {
        (NfTables::Present, Some(_)) if refused => "choose another --backend",
        (NfTables::Absent, Some(_)) if findings.legacy.is_some() => {
            "load the kernel module nf_tables on the node (`modprobe nf_tables`), or use --backend auto"
        }
        (NfTables::Absent, Some(_)) => {
            "load the kernel module nf_tables on the node (`modprobe nf_tables`), or put iptables-legacy into the image"
        }
        (NfTables::Absent, None) => {
            "put iptables-legacy into the image, and load the module ip_tables on the node"
        }
        (NfTables::Forbidden | NfTables::Present, Some(_)) => LEGACY,
        (NfTables::Forbidden | NfTables::Present, None) => {
            "put the package `iptables` into the image, or add the folder of iptables-nft-restore to PATH"
        }
    };
    Unavailable { what: format!("{what}; found: {findings}"), hint: hint.to_owned() }
}

/// The modules that would make a backend usable, if one was refused for want of some.
fn loading(findings: &Findings) -> Option<String> {
    let refused = findings.refused.iter();
    let mut needed: Vec<_> = refused
        .filter(|(_, refusal)| !refusal.modules.is_empty())
        .map(|(backend, refusal)| (*backend, refusal.modules.join(" ")))
        .collect();
    if needed.is_empty() {
        return None;
    }
    if findings.nf_tables == NfTables::Absent {
        let backend = findings.nft.as_ref().map_or(Backend::Native, |_| Variant::Nft.into());
        needed.push((backend, "nf_tables".to_owned()));
    }
    let commands: Vec<_> =
        needed.iter().map(|(backend, modules)| format!("`modprobe -a {modules}` ({backend})")).collect();
    Some(format!("load the kernel modules of one backend on the node: {}", commands.join(", or ")))
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

    /// Findings with which both variants can be used; foreign legacy rules are there.
    fn findings(chains: &[(Variant, usize)]) -> Findings {
        Findings {
            is_read_only: false,
            nf_tables: NfTables::Present,
            legacy_tables: vec!["nat (IPv4)".to_owned()],
            chains: chains.iter().copied().collect(),
            native_chains: 0,
            is_sandbox: false,
            refused: BTreeMap::new(),
            nft: Some(tools("nft")),
            legacy: Some(tools("legacy")),
        }
    }

    fn chosen(choice: BackendChoice, findings: &Findings) -> Variant {
        decide(choice, findings).unwrap().backend.variant().unwrap()
    }

    #[test]
    fn rules_stay_in_the_variant_that_holds_them() {
        for variant in Variant::ALL {
            let findings = findings(&[(variant, 4)]);
            for choice in AUTO {
                let decision = decide(choice, &findings).unwrap();
                assert_eq!((decision.backend, decision.why), (variant.into(), "it holds the live rules"));
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
    fn rules_stay_where_they_are_without_the_tools_of_their_variant() {
        for variant in Variant::ALL {
            let there = findings(&[(variant, 4)]);
            let without_its_tools = match variant {
                Variant::Nft => Findings { nft: None, ..there },
                Variant::Legacy => Findings { legacy: None, ..there },
            };
            let none = Findings { nft: None, legacy: None, ..without_its_tools.clone() };
            for choice in AUTO {
                assert_eq!(chosen(choice, &without_its_tools), variant);
                assert_eq!(chosen(choice, &none), variant);
            }
        }
    }

    #[test]
    fn rules_move_if_the_kernel_refuses_their_variant() {
        let refusal = Refusal { error: "flags owner".to_owned(), modules: Vec::new() };
        let refused = [(Variant::Nft.into(), refusal)].into();
        let refused = Findings { refused, ..findings(&[(Variant::Nft, 4)]) };
        AUTO.iter().for_each(|choice| assert_eq!(chosen(*choice, &refused), Variant::Legacy));
    }

    #[test]
    fn tools_do_not_decide_between_two_variants_that_hold_as_many_chains() {
        let chains = [(Variant::Nft, 4), (Variant::Legacy, 4)];
        for is_read_only in [false, true] {
            let with = Findings { is_read_only, ..findings(&chains) };
            let without = Findings { nft: None, legacy: None, ..with.clone() };
            for choice in AUTO {
                assert_eq!(decide(choice, &with), decide(choice, &without), "{choice:?}");
            }
        }
    }

    #[test]
    fn native_nftables_comes_behind_iptables_nft_and_before_iptables_legacy() {
        let all = Findings { legacy_tables: Vec::new(), ..findings(&[]) };
        let auto =
            |findings: &Findings| decide(BackendChoice::Auto, findings).map(|decision| decision.backend);
        assert_eq!(auto(&all), Ok(Variant::Nft.into()));
        assert_eq!(auto(&findings(&[])), Ok(Variant::Legacy.into()), "legacy rules are there");
        let without_nft = Findings { nft: None, ..all.clone() };
        assert!(without_nft.needs_try(BackendChoice::Auto) && !all.needs_try(BackendChoice::Auto));
        assert_eq!(auto(&without_nft), Ok(Backend::Native));
        assert_eq!(chosen(BackendChoice::Iptables, &without_nft), Variant::Legacy);
        let refusal = Refusal { error: "no tproxy".to_owned(), modules: Vec::new() };
        let refused = Findings { refused: [(Backend::Native, refusal)].into(), ..without_nft };
        assert_eq!(auto(&refused), Ok(Variant::Legacy.into()));
        let nothing = Findings { nft: None, legacy: None, ..all };
        assert!(!nothing.needs_try(BackendChoice::Auto));
        assert_eq!(auto(&nothing), Ok(Backend::Native));
        let absent = Findings { nf_tables: NfTables::Absent, ..nothing };
        let message = decide(BackendChoice::Auto, &absent).unwrap_err().what;
        assert!(
            message.starts_with("no backend can be used; found: the kernel has no nf_tables"),
            "{message}"
        );
    }

    #[test]
    fn native_rules_stay_native() {
        let native = Findings { native_chains: 5, ..findings(&[]) };
        let decide = |choice| decide(choice, &native).unwrap().backend;
        assert_eq!(decide(BackendChoice::Auto), Backend::Native);
        let needs = |choice, findings: &Findings| findings.needs_tools(choice);
        assert!(!needs(BackendChoice::Auto, &native) && !needs(BackendChoice::Nftables, &findings(&[])));
        assert!(needs(BackendChoice::Auto, &findings(&[])) && needs(BackendChoice::Iptables, &native));
        let both = Findings { native_chains: 5, ..findings(&[(Variant::Nft, 4)]) };
        assert!(needs(BackendChoice::Auto, &both) && needs(BackendChoice::Nftables, &both));
        assert_eq!(decide(BackendChoice::Nftables), Backend::Native);
        assert_eq!(decide(BackendChoice::Iptables), Variant::Legacy.into());
        assert_eq!(decide(BackendChoice::IptablesNft), Variant::Nft.into());
    }
    #[test]
    fn kernel_that_is_too_old_for_native_nftables_gets_iptables() {
        let refusal = Refusal { error: "needs Linux 5.2 or later".to_owned(), modules: Vec::new() };
        let refused = [(Backend::Native, refusal)].into();
        let old = Findings { refused, legacy_tables: Vec::new(), ..findings(&[]) };
        for choice in [BackendChoice::Auto, BackendChoice::Nftables] {
            assert!(old.needs_tools(choice) && !old.needs_try(choice), "{choice:?}");
        }
        assert_eq!(chosen(BackendChoice::Auto, &old), Variant::Nft);
        let without_nft = Findings { nft: None, ..old.clone() };
        assert!(!without_nft.needs_try(BackendChoice::Auto));
        assert_eq!(chosen(BackendChoice::Auto, &without_nft), Variant::Legacy);
        let Unavailable { what, hint } = decide(BackendChoice::Nftables, &old).unwrap_err();
        assert!(
            what.starts_with("--backend nftables cannot be used; found: the kernel has nf_tables"),
            "{what}"
        );
        assert!(what.contains("native nftables: needs Linux 5.2 or later"), "{what}");
        assert_eq!(hint, "choose another --backend");
    }
}
