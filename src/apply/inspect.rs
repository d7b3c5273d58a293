//! Reads the current state: chooses the backend, reads live rules, routes and addresses.

use std::collections::BTreeMap;
use std::io;

use super::{
    from_kernel, missing_modules, needed, network, pod_runtime, preconditions, sandbox, tool_error,
    unlisted_chains,
};
use crate::backend::{self, Decision, Findings, Refusal};
use crate::config::BackendChoice;
use crate::connections::execute;
use crate::exit::Exit;
use crate::kernel::observe::{self, Handles};
use crate::kernel::process::Host;
use crate::kernel::release::Release;
use crate::kernel::snapshot::{self, Snapshot};
use crate::kernel::{legacy, modules, nftables, recording, restore, tools};
use crate::model::{Backend, Family, NfTables, PerFamily, Variant};
use crate::nft;
use crate::parse::{self, Line, Observed, ToolWords};
use crate::plan::CurrentState;
use crate::record::Record;
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
    /// None, for a question: it needs no tool, since nothing will be written.
    Question,
    /// None, but the decisions of a run.
    DryRun,
    /// Empty legacy tables, if they cannot be listed and rules must be added or removed: an earlier run may
    /// have left some in either family.
    MayCreateTables,
}

/// Reads the current state. In a namespace without rules of ours this starts no process.
///
/// # Errors
/// No backend can be used, or the current state cannot be read.
pub fn inspect(host: &impl Host, choice: BackendChoice, access: Access) -> Result<Inspection, Failure> {
    inspect_without(host, choice, access, &BTreeMap::new())
}

/// Reads the current state, without the backends that the kernel has refused.
///
/// # Errors
/// No other backend can be used, or the current state cannot be read.
pub(super) fn inspect_without(
    host: &impl Host,
    choice: BackendChoice,
    access: Access,
    refused: &BTreeMap<Backend, Refusal>,
) -> Result<Inspection, Failure> {
    let mut snapshot = Snapshot::take()
        .map_err(|error| from_kernel(format!("cannot read the kernel's packet filter: {error}"), &error))?;
    let alias = observe::alias()
        .map_err(|error| from_kernel(format!("cannot read the alias of lo: {error}"), &error))?;
    // Reading by name creates no table where an earlier run has written into them.
    let recorded = || Record::read(alias.as_deref()).is_some_and(|record| record.names(Variant::Legacy));
    if snapshot.legacy_unlisted && recorded() {
        snapshot.read_legacy_by_name().map_err(|error| unreadable(&error))?;
    }
    if snapshot.is_sandbox && snapshot.legacy_unlisted {
        return Err(sandbox::no_raw_socket());
    }
    let findings = findings(host, &snapshot, choice, access, refused);
    log::debug!("{findings}");
    refuse_forbidden(snapshot.nf_tables)?;
    let decision = decide(choice, &findings)?;
    match (decision.backend, access) {
        _ if !snapshot.legacy_unlisted => {}
        (Backend::Iptables(Variant::Legacy), Access::MayCreateTables) => {
            snapshot.read_legacy_by_name().map_err(|error| unreadable(&error))?
        }
        (Backend::Iptables(Variant::Legacy), Access::Question | Access::DryRun) => return Err(unlisted()),
        (Backend::Iptables(Variant::Nft) | Backend::Native, _) => {}
    }
    let mut routing = network::observed()
        .map_err(|error| from_kernel(format!("cannot read routes and policy rules: {error}"), &error))?;
    if !snapshot.native.is_ours() {
        routing.native = network::native(&snapshot.native);
    }
    let foreign = foreign_tables(&snapshot, decision.backend);
    let foreign_sets = nftables::members(&foreign);
    let is_lockdown = |table: &nfnetlink::nftables::Table| nft::is_lockdown_table(&table.name.name);
    let (lockdown, foreign) = foreign.into_iter().partition(is_lockdown);
    let mut current = CurrentState {
        native: snapshot.native.clone(),
        network: routing,
        alias,
        dormant: snapshot.dormant.clone(),
        unsuitable: snapshot.unsuitable.clone(),
        owned: snapshot.owned.iter().map(ToString::to_string).collect(),
        foreign_sets,
        foreign,
        lockdown,
        legacy_unlisted: snapshot.legacy_unlisted,
        is_sandbox: snapshot.is_sandbox,
        ..CurrentState::empty(decision.backend)
    };
    read_rules(host, &snapshot, &findings, decision.backend, &mut current)?;
    if decision.backend != Backend::Iptables(Variant::Legacy) {
        current.foreign_legacy = foreign_legacy(host, &snapshot);
    }
    let live = current.rules.values().any(Observed::has_ours) || !snapshot.native.is_empty();
    if !snapshot.is_sandbox {
        current.entries = execute::entries(live);
    }
    if current.has_foreign_rules() {
        current.tcp_listeners = pod_runtime::tcp_listeners();
    }
    Ok(Inspection { decision, current })
}

/// What may not be read may hold rules of ours.
fn refuse_forbidden(nf_tables: NfTables) -> Result<(), Failure> {
    if nf_tables != NfTables::Forbidden {
        return Ok(());
    }
    let error = io::Error::from(io::ErrorKind::PermissionDenied);
    Err(from_kernel(format!("cannot read nftables: {error}"), &error))
}

/// Reads the tables that hold rules of ours, and those that they are to be in.
fn read_rules(
    host: &impl Host,
    snapshot: &Snapshot,
    findings: &Findings,
    backend: Backend,
    current: &mut CurrentState,
) -> Result<(), Failure> {
    for variant in Variant::ALL {
        for family in Family::ALL {
            let may_be_left = may_be_left(current, snapshot, variant, family);
            let is_interrupted = current.record().is_some_and(|record| record.is_changing());
            let holds_ours = snapshot.has_chains(variant, family) || (may_be_left && is_interrupted);
            let is_chosen = backend == Backend::Iptables(variant) && snapshot.hooks_in_use(variant, family);
            let read = if holds_ours {
                Some(read(host, variant, family, findings.is_read_only)?)
            } else if is_chosen || may_be_left {
                read_foreign(host, variant, family, findings.is_read_only)
            } else {
                None
            };
            if let Some(mut observed) = read {
                let record = current.record();
                observed.record = record.and_then(|record| record.of_variant(variant));
                current.rules.insert((variant, family), observed);
            }
        }
    }
    Ok(())
}

/// Whether rules of ours may be there without chains of ours: an interrupted run has deleted those, or had
/// not made them yet, or another program has deleted them.
fn may_be_left(current: &CurrentState, snapshot: &Snapshot, variant: Variant, family: Family) -> bool {
    snapshot.hooks_in_use(variant, family)
        && current.record().is_some_and(|record| record.may_have_left(variant, family))
}

fn decide(choice: BackendChoice, findings: &Findings) -> Result<Decision, Failure> {
    let decision = backend::decide(choice, findings)
        .map_err(|none| Failure::new(Exit::Unavailable, none.what).hint(none.hint))?;
    let refusal = findings.refused.get(&Backend::Native);
    if let (Backend::Iptables(Variant::Legacy), Some(refusal)) = (decision.backend, refusal) {
        log::info!("native nftables is not used: {refusal}");
    }
    Ok(decision)
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

fn findings(
    host: &impl Host,
    snapshot: &Snapshot,
    choice: BackendChoice,
    access: Access,
    refused: &BTreeMap<Backend, Refusal>,
) -> Findings {
    let mut findings = Findings {
        nf_tables: snapshot.nf_tables,
        legacy_tables: snapshot.legacy_tables_in_use(),
        chains: Variant::ALL.map(|variant| (variant, snapshot.chains_of_ours(variant))).into(),
        native_chains: snapshot.native.chains_of_ours(),
        is_sandbox: snapshot.is_sandbox,
        is_read_only: access == Access::Question,
        refused: refused.clone(),
        nft: None,
        legacy: None,
    };
    if !snapshot.is_sandbox && Release::INET_NAT.is_after_running() {
        let refusal = Refusal { error: "needs Linux 5.2 or later".to_owned(), modules: Vec::new() };
        findings.refused.insert(Backend::Native, refusal);
    }
    if let Some(table) = snapshot.owned_of_iptables() {
        let error = preconditions::belongs(&table);
        if matches!(choice, BackendChoice::Auto | BackendChoice::Iptables) {
            log::info!("iptables-nft is not used: {error}");
        }
        findings.refused.insert(Variant::Nft.into(), Refusal { error, modules: Vec::new() });
    }
    refuse_iptables_from_outside(choice, &mut findings);
    // Eight lookups in every folder of PATH.
    if findings.needs_tools(choice) || log::log_enabled!(log::Level::Debug) {
        findings.nft = tools::tools(host, Variant::Nft, Family::V4);
        findings.legacy = tools::tools(host, Variant::Legacy, Family::V4);
    }
    if access == Access::MayCreateTables
        && findings.needs_try(choice)
        && let Err(error) = nftables::try_scratch()
    {
        let modules = missing_modules::of_commit(&error, &modules::is_loaded);
        findings.refused.insert(Backend::Native, Refusal { error: error.to_string(), modules });
    }
    findings
}

/// From a node into a pod with a user namespace of its own: iptables' rules with users are refused, those of
/// native nftables are not. Where iptables holds rules of ours already, they can stay.
fn refuse_iptables_from_outside(choice: BackendChoice, findings: &mut Findings) {
    let is_native_possible =
        findings.nf_tables == NfTables::Present && !findings.refused.contains_key(&Backend::Native);
    if choice != BackendChoice::Auto || !is_native_possible || !preconditions::is_outside() {
        return;
    }
    let unused = findings.chains.iter().filter(|(_, chains)| **chains == 0);
    for (variant, _) in unused {
        log::debug!("{variant} is not used: {}", preconditions::NO_OWNER_MATCH);
        let error = preconditions::NO_OWNER_MATCH.to_owned();
        findings.refused.entry((*variant).into()).or_insert(Refusal { error, modules: Vec::new() });
    }
}

/// Reads foreign rules, to see which of them decide before ours would. Nothing depends on it.
fn read_foreign(host: &impl Host, variant: Variant, family: Family, is_read_only: bool) -> Option<Observed> {
    let read = read(host, variant, family, is_read_only);
    let unread = |failure: &Failure| {
        let reason = failure.lines().next().unwrap_or_default();
        log::warn!(
            "foreign {family} rules of {variant} cannot be read, so those that decide before ours are not reported: {reason}"
        );
    };
    read.inspect_err(unread).ok()
}

/// Reads the rules of iptables-legacy if another backend holds ours.
fn foreign_legacy(host: &impl Host, snapshot: &Snapshot) -> PerFamily<Observed> {
    let foreign = |family: &Family| {
        snapshot.hooks_in_use(Variant::Legacy, *family) && !snapshot.has_chains(Variant::Legacy, *family)
    };
    let families = Family::ALL.into_iter().filter(foreign);
    families.filter_map(|family| Some((family, read_foreign(host, Variant::Legacy, family, true)?))).collect()
}

/// Reads other programs' nftables tables, to see which of them decide before ours would. Nothing depends on
/// it.
fn foreign_tables(snapshot: &Snapshot, backend: Backend) -> Vec<nfnetlink::nftables::Table> {
    // Their rules are read by the tools.
    let without_iptables = backend == Backend::Iptables(Variant::Nft);
    let read = snapshot::foreign_tables(snapshot, without_iptables);
    read.inspect_err(|error| log::debug!("foreign nftables tables cannot be read: {error}"))
        .unwrap_or_default()
}

/// How often rules that change all the time are read.
const ATTEMPTS: usize = 16;

/// Reads all rules of a family. Where nothing will be deleted, whether the tool lists all of them is not
/// asked.
///
/// # Errors
/// The tool fails, or the kernel cannot be read.
pub(super) fn read(
    host: &impl Host,
    variant: Variant,
    family: Family,
    is_read_only: bool,
) -> Result<Observed, Failure> {
    match variant {
        Variant::Legacy => read_saved(host, variant, family),
        Variant::Nft => read_nft(host, family, is_read_only),
    }
}

/// Reads the rules in the words of the save tool.
fn read_saved(host: &impl Host, variant: Variant, family: Family) -> Result<Observed, Failure> {
    let text = saved(host, variant, family, "rules are read with them")?;
    log::debug!("{family} rules of {variant}:\n{}", text.trim_end());
    Ok(parse::iptables_save(family, &text))
}

/// The rules in the words of the save tool, which runs only for what is not read from the kernel.
pub(super) fn saved(
    host: &impl Host,
    variant: Variant,
    family: Family,
    why: &str,
) -> Result<String, Failure> {
    if variant == Variant::Legacy
        && let Some(text) = legacy_tables(host, family)
            .map_err(|error| tool_error::of_save(&restore::ToolError::Tables(error), variant, family))?
    {
        return Ok(text);
    }
    let tools = needed(host, variant, family, why)?;
    let saved = restore::save(host, variant, family, &tools)
        .map_err(|error| tool_error::of_save(&error, variant, family))?;
    tool_error::whole(saved, &tools)
}

/// The legacy tables in the words of the save tool, which it has to give only for rules that are not
/// understood; those keep a mark in a sandbox, where the tool finds no tables, and where there is no tool.
/// Elsewhere `None` if the tables may not be read, or change.
fn legacy_tables(host: &impl Host, family: Family) -> io::Result<Option<String>> {
    let has_revisions = legacy::has_revisions();
    let text = recording::text(&format!("{family} rules of iptables-legacy"), &mut || {
        let saved = parse::saved_tables(family, &legacy::raw_tables(family)?, has_revisions)?;
        if !saved.lacks_words || !has_revisions {
            return Ok(saved.text);
        }
        let Some(tools) = tools::tools(host, Variant::Legacy, family) else { return Ok(saved.text) };
        // Where the tool fails, reading with nothing but the tool says why.
        let of_tool = restore::save(host, Variant::Legacy, family, &tools);
        let whole = of_tool.ok().and_then(|text| tool_error::whole(text, &tools).ok());
        whole.and_then(|text| saved.completed(&text)).ok_or_else(|| io::ErrorKind::Unsupported.into())
    });
    if has_revisions { Ok(text.ok()) } else { text.map(Some) }
}

/// Reads the rules of iptables-nft from the kernel. They come with their handles, where rules of ours may be
/// identical to foreign ones: read behind the rules, and valid if nothing was committed from before the rules
/// were read, or if they are the same as before. Otherwise all is read again, and if other programs always
/// change something, the rules come without.
fn read_nft(host: &impl Host, family: Family, is_read_only: bool) -> Result<Observed, Failure> {
    let unreadable =
        |error: io::Error| from_kernel(format!("cannot read the handles of rules: {error}"), &error);
    let mut before: Option<Handles> = None;
    for _ in 0..ATTEMPTS {
        let (generation, mut observed) = read_kernel(host, family, is_read_only)?;
        if !needs_handles(&observed) {
            return Ok(observed);
        }
        let after = observe::handles(family).map_err(unreadable)?;
        let is_unchanged = observe::generation().map_err(unreadable)? == generation;
        if is_unchanged || before.as_ref().is_some_and(|before| before.tables == after.tables) {
            for (table, handles) in &after.tables {
                observed.number(*table, handles);
            }
            return Ok(observed);
        }
        before = Some(after);
    }
    Ok(read_kernel(host, family, is_read_only)?.1)
}

/// Reads the rules of iptables-nft without handles, with the generation of the rules.
fn read_kernel(host: &impl Host, family: Family, is_read_only: bool) -> Result<(u32, Observed), Failure> {
    let read = recording::optional(|| observe::tables_of_iptables(family));
    let (generation, tables) = match read {
        // Bundles of earlier versions have the text of the tool in their place.
        Err(error) => {
            if recording::is_replayed() {
                let saved = recording::optional(|| {
                    read_saved(host, Variant::Nft, family).map_err(|failure| io::Error::other(failure.what))
                });
                if let Ok(saved) = saved {
                    return Ok((0, saved));
                }
                // The bundle has neither: this is what is missing.
                drop(observe::tables_of_iptables(family));
            }
            let what = format!("cannot read the {family} tables of iptables-nft: {error}");
            return Err(from_kernel(what, &error));
        }
        Ok(read) => read,
    };
    let (mut observed, lacks_options) = parse::kernel_tables(family, &tables, &ToolWords::new());
    if lacks_options {
        observed = parse::kernel_tables(family, &tables, &tool_words(host, family)).0;
    }
    log::debug!("{family} rules of iptables-nft:\n{}", observed.listed());
    if is_read_only {
        return Ok((generation, observed));
    }
    for (table, hook) in unlisted_chains::of(host, family, &observed, &tables)? {
        observed.tables.entry(table).or_default().unlisted.insert(hook);
    }
    Ok((generation, observed))
}

/// The words of the save tool, where a rule has an extension whose options only the tool has words for.
/// Without them the rule is shown without these options.
fn tool_words(host: &impl Host, family: Family) -> ToolWords {
    let Some(tools) = tools::tools(host, Variant::Nft, family) else { return ToolWords::new() };
    match restore::save(host, Variant::Nft, family, &tools) {
        Ok(saved) => parse::tool_words(&saved),
        Err(error) => {
            let Failure { what, .. } = tool_error::of_save(&error, Variant::Nft, family);
            log::debug!("options of extensions are not shown: {what}");
            ToolWords::new()
        }
    }
}

/// Whether a rule may have to be distinguished from an identical one, or be deleted where the tool cannot.
/// Jumps to our chains are ours, all of them, and what is not understood never is.
fn needs_handles(observed: &Observed) -> bool {
    let may_be_ours = |line: &Line| line.jump.is_none() && line.statement.is_some();
    observed
        .tables
        .values()
        .any(|table| !table.unlisted.is_empty() || table.hooks.values().flatten().any(may_be_ours))
}
