//! Before anything is done: which backend, and what of ours stands where.

use std::collections::BTreeMap;
use std::io;

use super::{conntrack, from_kernel, hidden, needed};
use crate::backend::{self, Decision, Findings, NfTables, Variant};
use crate::config::BackendChoice;
use crate::connections::Connections;
use crate::exit::Exit;
use crate::kernel::observe::{self, Picture};
use crate::kernel::process::Host;
use crate::kernel::{restore, tools};
use crate::model::Family;
use crate::parse::{self, Observed};
use crate::plan::Situation;
use crate::report::Failure;

/// What was found.
#[derive(Debug)]
pub struct Outlook {
    /// The backend, and why.
    pub decision: Decision,
    /// What stands.
    pub situation: Situation,
}

/// What looking may leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Nothing.
    Nothing,
    /// Empty legacy tables, where they cannot be listed and rules are to be put in or taken out: an earlier run may have
    /// left some in either family.
    Tables,
}

/// Looks at the kernel. A namespace without anything of ours costs no process.
///
/// # Errors
/// No backend can be used, or what stands cannot be read.
pub fn look(host: &impl Host, choice: BackendChoice, touch: Touch) -> Result<Outlook, Failure> {
    let mut picture = Picture::take()
        .map_err(|error| from_kernel(format!("cannot read the kernel's packet filter: {error}"), &error))?;
    let findings = findings(host, &picture);
    log::debug!("{findings}");
    if picture.nf_tables == NfTables::Forbidden {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        return Err(from_kernel(format!("cannot read nftables: {error}"), &error));
    }
    let decision = backend::decide(choice, &findings)
        .map_err(|none| Failure::new(Exit::Unavailable, none.what).hint(none.hint))?;
    match (decision.variant, touch) {
        _ if !picture.legacy_unlisted => {}
        (Variant::Legacy, Touch::Tables) => picture.ask_for_legacy().map_err(|error| unreadable(&error))?,
        (Variant::Legacy, Touch::Nothing) => return Err(unlisted()),
        (Variant::Nft, _) => {
            log::warn!(
                "the tables of iptables-legacy cannot be listed: if rules of ours stand there, they stay"
            );
        }
    }
    let mut rules = BTreeMap::new();
    for variant in Variant::ALL {
        for family in Family::ALL.into_iter().filter(|family| picture.stands(variant, *family)) {
            rules.insert((variant, family), read_back(host, variant, family, &findings)?);
        }
    }
    let mut network = observe::routing()
        .map_err(|error| from_kernel(format!("cannot read routes and policy rules: {error}"), &error))?;
    network.native = observe::native(&picture.native_tables)
        .map_err(|error| from_kernel(format!("cannot read Istio's native tables: {error}"), &error))?;
    let entries = conntrack::entries(!rules.is_empty() || !picture.native_tables.is_empty());
    let situation = Situation {
        variant: decision.variant,
        rules,
        native_tables: picture.native_tables,
        network,
        entries,
        connections: Connections::default(),
    };
    Ok(Outlook { decision, situation })
}

fn unreadable(error: &io::Error) -> Failure {
    from_kernel(format!("cannot read the tables of iptables-legacy: {error}"), error)
}

fn unlisted() -> Failure {
    Failure::new(
        Exit::NoPermission,
        "the tables of iptables-legacy cannot be listed, and looking for them by name would make them",
    )
    .hint(
        "run as root or in its group (runAsGroup: 0), to which the kernel shows the list, with /proc mounted",
    )
}

fn findings(host: &impl Host, picture: &Picture) -> Findings {
    let of = |variant| tools::tools(host, variant, Family::V4);
    Findings {
        nf_tables: picture.nf_tables,
        legacy_tables: picture.legacy_tables_in_use(),
        chains: Variant::ALL.map(|variant| (variant, picture.chains_of_ours(variant))).into(),
        nft: of(Variant::Nft),
        legacy: of(Variant::Legacy),
    }
}

/// Reads what stands, by the tool of the variant that holds it.
fn read_back(
    host: &impl Host,
    variant: Variant,
    family: Family,
    findings: &Findings,
) -> Result<Observed, Failure> {
    let tools = needed(host, variant, family, "rules of ours stand there already")
        .map_err(|failure| failure.detail(findings.to_string()))?;
    let text = restore::save(host, variant, family, &tools)?;
    log::debug!("{family} rules of {variant} before:\n{}", text.trim_end());
    hidden::none_of_ours(variant, family, &text)?;
    Ok(parse::iptables_save(family, &text))
}
