//! What a sandbox such as gVisor lacks of netfilter, found out before anything is written.

use super::needed;
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::kernel::release::Release;
use crate::kernel::restore::{self, ToolError};
use crate::kernel::sandbox::is_sandbox;
use crate::kernel::{legacy, netns, rules_file};
use crate::model::{CtState, FamilyRules, Table, TableRules, Target, Tools, Variant};
use crate::plan::{CurrentState, DesiredState, Step};
use crate::policy;
use crate::render;
use crate::report::Failure;

/// More rules than that a sandbox gets with several ports in one: it takes 32 KiB of them, each of some 200
/// bytes.
const MOST_SINGLE_RULES: usize = 100;

/// The rules in a form that the kernel has room for.
#[must_use]
pub fn fitting(rules: FamilyRules) -> FamilyRules {
    let is_compact = rules.count() > MOST_SINGLE_RULES && is_sandbox();
    if is_compact { policy::compact(rules) } else { rules }
}

/// The tables cannot be read: gVisor answers about them on raw sockets only.
pub(super) fn no_raw_socket() -> Failure {
    let what = format!("{} lets this process open no raw socket, which iptables-legacy needs", kernel());
    Failure::new(Exit::NoPermission, what).hint(
        "add the capability NET_RAW to the container (securityContext.capabilities.add), and permit raw sockets in the runtime, \
         which drops that capability otherwise: `runsc --net-raw`, in containerd net-raw = \"true\" in the options of runsc",
    )
}

/// The kernel, with its version.
fn kernel() -> String {
    format!(
        "the sandbox's kernel ({})",
        Release::text_of_running().unwrap_or_else(|| "no version".to_owned())
    )
}

/// Makes sure that the kernel has what these steps need. Linux is not asked.
///
/// # Errors
/// It lacks a feature of an option, a table, or refuses a rule or their number.
pub(super) fn check(
    host: &impl Host,
    desired: &DesiredState,
    current: &CurrentState,
    steps: &[Step],
) -> Result<(), Failure> {
    if !current.is_sandbox || !steps.iter().any(|step| matches!(step, Step::Restore(_))) {
        return Ok(());
    }
    for rules in desired.rules.values().filter(|rules| rules.count() > 0) {
        refuse_options(rules)?;
        require_tables(rules)?;
        try_out(host, rules)?;
    }
    Ok(())
}

fn refuse_options(rules: &FamilyRules) -> Result<(), Failure> {
    let refused = rules.tables.values().flat_map(TableRules::rules).find_map(|rule| {
        match (rule.statement.target, rule.statement.matcher.ct_state) {
            (Target::Tproxy { .. }, _) => {
                Some(("TPROXY", "use REDIRECT: leave out --istio-inbound-interception-mode (-m)"))
            }
            (_, Some(CtState::Invalid)) => {
                Some(("match of conntrack states, which --drop-invalid needs", "leave out --drop-invalid"))
            }
            _ => None,
        }
    });
    let Some((what, hint)) = refused else { return Ok(()) };
    Err(Failure::new(Exit::Refused, format!("{} has no {what}", kernel())).hint(hint))
}

fn require_tables(rules: &FamilyRules) -> Result<(), Failure> {
    let exists = |table: &Table| {
        let listed = legacy::tables(rules.family);
        // What cannot be asked shows when rules are written.
        listed.map_or(true, |listed| listed.is_empty() || listed.iter().any(|name| name == table.name()))
    };
    let Some(table) = rules.tables.keys().find(|table| !exists(table)) else { return Ok(()) };
    let what = format!("{} has no {} table {}", kernel(), rules.family, table.name());
    Err(Failure::new(Exit::Refused, what).hint(match table {
        Table::Raw => {
            "DNS capture needs it: use a newer runsc (gVisor has the table since April 2026), or leave out --redirect-dns"
        }
        Table::Mangle | Table::Nat => "use a newer runsc",
    }))
}

/// Writes the rules into a network namespace that exists only for that.
fn try_out(host: &impl Host, rules: &FamilyRules) -> Result<(), Failure> {
    let tools = needed(host, Variant::Legacy, rules.family, "rules are written with them")?;
    let text = render::fresh(rules);
    match is_accepted(host, &tools, &text) {
        None => {
            log::debug!("rules cannot be tried before they are written: no network namespace can be made");
            // Each table is written whole or not at all, and this one first.
            return Ok(());
        }
        Some(true) => return Ok(()),
        Some(false) => {}
    }
    // Each longer beginning of the rules holds the shorter ones.
    let number = text.lines().filter(|line| is_rule(line)).count();
    let (mut accepted, mut refused) = (0, number);
    while accepted + 1 < refused {
        let middle = usize::midpoint(accepted, refused);
        if is_accepted(host, &tools, &beginning(&text, |rule| rule < middle)) == Some(true) {
            accepted = middle;
        } else {
            refused = middle;
        }
    }
    let rule = text.lines().filter(|line| is_rule(line)).nth(accepted).unwrap_or_default();
    let family = rules.family;
    if is_accepted(host, &tools, &beginning(&text, |rule| rule == accepted)) == Some(true) {
        let what = format!(
            "{} takes {accepted} of the {number} {family} rules that these options need: gVisor takes at most 32 KiB of rules \
             for each table, and 8 KiB before 2026",
            kernel()
        );
        let hint = "list fewer ports and ranges, or larger ranges";
        return Err(Failure::new(Exit::Refused, what).hint(hint));
    }
    let what = format!("{} refuses the {family} rule `{rule}`", kernel());
    Err(Failure::new(Exit::Refused, what)
        .hint("use a newer runsc: gVisor takes the rules of Istio since January 2024; nothing was written"))
}

/// The kernel refuses a table, which could not be tried before: without CAP_SYS_ADMIN or CAP_SETFCAP there is
/// no network namespace for that.
pub(super) fn refused(failure: Failure, text: &str) -> Failure {
    const SINCE: [(&str, &str); 3] =
        [(" ! --dport ", "January 2024"), (" multiport ", "January 2025"), (" -j CT ", "April 2026")];
    let rule = |word: &str| text.lines().find(|line| is_rule(line) && line.contains(word));
    let known = SINCE.into_iter().filter_map(|(word, since)| Some((rule(word)?, since)));
    let newer = known.fold(failure, |failure, (rule, since)| {
        failure.detail(format!("gVisor takes `{rule}` since {since}"))
    });
    let what = format!("{} refuses the rules: {}", kernel(), newer.what);
    let failure = Failure { what, missing_modules: Vec::new(), ..newer };
    failure.hint(
        "use a newer runsc, or list fewer ports and ranges: it takes at most 32 KiB of rules for each table",
    )
}

/// Whether the kernel takes these rules; `None` if they cannot be tried.
fn is_accepted(host: &impl Host, tools: &Tools, text: &str) -> Option<bool> {
    let file = rules_file::temporary(text).ok()?.file;
    let lock = netns::lock_file().ok();
    let path = lock.as_ref().map(netns::LockFile::path);
    match restore::try_out(host, tools, file, path.as_deref()) {
        Ok(()) => Some(true),
        Err(ToolError::Failed { output, .. }) => {
            log::debug!("tried: {}", output.stderr.trim_end());
            Some(false)
        }
        Err(_) => None,
    }
}

fn is_rule(line: &str) -> bool {
    line.starts_with("-A ") || line.starts_with("-I ")
}

/// The text with those of its rules only whose number is wanted.
fn beginning(text: &str, wanted: impl Fn(usize) -> bool) -> String {
    let mut number = 0;
    let kept = text.lines().filter(|line| {
        let is_kept = !is_rule(line) || wanted(number);
        number += usize::from(is_rule(line));
        is_kept
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}
