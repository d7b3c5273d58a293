//! Reads the current state: chooses the backend, reads live rules, routes and addresses.

use std::collections::BTreeMap;
use std::io;

use super::{conntrack, from_kernel, hidden, needed};
use crate::backend::{self, Decision, Findings, NfTables, Variant};
use crate::config::BackendChoice;
use crate::connections::Connections;
use crate::exit::Exit;
use crate::kernel::observe::{self, Snapshot};
use crate::kernel::process::Host;
use crate::kernel::{restore, tools};
use crate::model::Family;
use crate::parse::{self, Observed};
use crate::plan::CurrentState;
use crate::report::Failure;

/// The chosen backend and the current state.
#[derive(Debug)]
pub struct Inspection {
    /// The backend, and why it was chosen.
    pub decision: Decision,
    /// The live rules, routes and addresses.
    pub current: CurrentState,
}

/// Side effects that reading the kernel may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// None.
    ReadOnly,
    /// Empty legacy tables, where they cannot be listed and rules are to be put in or taken out: an earlier run may have
    /// left some in either family.
    MayCreateTables,
}

/// Reads the current state. In a namespace without rules of ours this starts no process.
///
/// # Errors
/// No backend can be used, or the current state cannot be read.
pub fn inspect(host: &impl Host, choice: BackendChoice, access: Access) -> Result<Inspection, Failure> {
    let mut snapshot = Snapshot::take()
        .map_err(|error| from_kernel(format!("cannot read the kernel's packet filter: {error}"), &error))?;
    let findings = findings(host, &snapshot);
    log::debug!("{findings}");
    if snapshot.nf_tables == NfTables::Forbidden {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        return Err(from_kernel(format!("cannot read nftables: {error}"), &error));
    }
    let decision = backend::decide(choice, &findings)
        .map_err(|none| Failure::new(Exit::Unavailable, none.what).hint(none.hint))?;
    match (decision.variant, access) {
        _ if !snapshot.legacy_unlisted => {}
        (Variant::Legacy, Access::MayCreateTables) => {
            snapshot.read_legacy_by_name().map_err(|error| unreadable(&error))?
        }
        (Variant::Legacy, Access::ReadOnly) => return Err(unlisted()),
        (Variant::Nft, _) => {
            log::warn!(
                "the tables of iptables-legacy cannot be listed: rules of an earlier run in them are kept"
            );
        }
    }
    let mut rules = BTreeMap::new();
    for variant in Variant::ALL {
        for family in Family::ALL.into_iter().filter(|family| snapshot.has_chains(variant, *family)) {
            rules.insert((variant, family), read_back(host, variant, family, &findings)?);
        }
    }
    let mut network = observe::routing()
        .map_err(|error| from_kernel(format!("cannot read routes and policy rules: {error}"), &error))?;
    network.native = observe::native(&snapshot.native_tables)
        .map_err(|error| from_kernel(format!("cannot read Istio's native tables: {error}"), &error))?;
    let entries = conntrack::entries(!rules.is_empty() || !snapshot.native_tables.is_empty());
    let current = CurrentState {
        variant: decision.variant,
        rules,
        native_tables: snapshot.native_tables,
        network,
        entries,
        connections: Connections::default(),
    };
    Ok(Inspection { decision, current })
}

fn unreadable(error: &io::Error) -> Failure {
    from_kernel(format!("cannot read the tables of iptables-legacy: {error}"), error)
}

fn unlisted() -> Failure {
    Failure::new(
        Exit::NoPermission,
        "the tables of iptables-legacy cannot be listed, and reading them by name would create them",
    )
    .hint("run as root or in group 0 (runAsGroup: 0), with /proc mounted")
}

fn findings(host: &impl Host, snapshot: &Snapshot) -> Findings {
    let of = |variant| tools::tools(host, variant, Family::V4);
    Findings {
        nf_tables: snapshot.nf_tables,
        legacy_tables: snapshot.legacy_tables_in_use(),
        chains: Variant::ALL.map(|variant| (variant, snapshot.chains_of_ours(variant))).into(),
        nft: of(Variant::Nft),
        legacy: of(Variant::Legacy),
    }
}

/// Reads the live rules with the tool of the variant that holds them.
fn read_back(
    host: &impl Host,
    variant: Variant,
    family: Family,
    findings: &Findings,
) -> Result<Observed, Failure> {
    let tools = needed(host, variant, family, "it holds rules of an earlier run")
        .map_err(|failure| failure.detail(findings.to_string()))?;
    let text = restore::save(host, variant, family, &tools)?;
    log::debug!("{family} rules of {variant} before:\n{}", text.trim_end());
    hidden::none_of_ours(variant, family, &text)?;
    Ok(parse::iptables_save(family, &text))
}
