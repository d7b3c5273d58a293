//! Finds out which kernel modules are missing, from the errors of a restore tool or the kernel.

use nfnetlink::nftables::{CommitError, Origin};

use crate::model::{Family, Variant};

/// What is missing, in the words of a tool or of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing<'a> {
    /// A table of iptables-legacy.
    Table(Family, &'a str),
    /// nf_tables as a whole.
    NfTables,
    /// A base chain of the type `nat` in nf_tables.
    NatChain,
    /// Every match and target of iptables in nf_tables.
    Compat,
    /// A match or target of iptables, of either variant.
    Extension(&'a str),
    /// An expression of nf_tables.
    Expression(&'a str),
}

use Family::{V4, V6};
use Missing::{Compat, Expression, Extension, NatChain, NfTables, Table};

/// The modules that each needs, those first that others depend on.
const MODULES: [(Missing<'static>, &[&str]); 28] = [
    (Table(V4, "nat"), &["ip_tables", "nf_conntrack", "nf_nat", "iptable_nat"]),
    (Table(V4, "mangle"), &["ip_tables", "iptable_mangle"]),
    (Table(V4, "raw"), &["ip_tables", "iptable_raw"]),
    (Table(V6, "nat"), &["ip6_tables", "nf_conntrack", "nf_nat", "ip6table_nat"]),
    (Table(V6, "mangle"), &["ip6_tables", "ip6table_mangle"]),
    (Table(V6, "raw"), &["ip6_tables", "ip6table_raw"]),
    (NfTables, &["nf_tables"]),
    (NatChain, &["nf_conntrack", "nf_nat", "nft_chain_nat"]),
    (Compat, &["nft_compat"]),
    (Extension("CONNMARK"), &["nf_conntrack", "xt_connmark"]),
    (Extension("connmark"), &["nf_conntrack", "xt_connmark"]),
    (Extension("conntrack"), &["nf_conntrack", "xt_conntrack"]),
    (Extension("CT"), &["nf_conntrack", "xt_CT"]),
    (Extension("MARK"), &["xt_mark"]),
    (Extension("mark"), &["xt_mark"]),
    (Extension("multiport"), &["xt_multiport"]),
    (Extension("owner"), &["xt_owner"]),
    (Extension("REDIRECT"), &["nf_conntrack", "nf_nat", "xt_REDIRECT"]),
    (Extension("socket"), &["xt_socket"]),
    (Extension("tcp"), &["xt_tcpudp"]),
    (Extension("udp"), &["xt_tcpudp"]),
    (Extension("TPROXY"), &["xt_TPROXY"]),
    (Expression("counter"), &["nft_counter"]),
    (Expression("ct"), &["nf_conntrack", "nft_ct"]),
    (Expression("lookup"), &["nf_tables_set"]),
    (Expression("redir"), &["nf_conntrack", "nf_nat", "nft_redir"]),
    (Expression("socket"), &["nft_socket"]),
    (Expression("tproxy"), &["nft_tproxy"]),
];

/// The modules for all of `missing`, each once, without those that are loaded. If all of them are, the kernel
/// refuses for another reason: none.
fn modules(missing: &[Missing<'_>], is_loaded: &impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut modules = Vec::new();
    for missing in missing {
        let needed = MODULES.iter().find(|(known, _)| known == missing).map_or(&[][..], |(_, needed)| needed);
        for module in needed {
            if !modules.contains(module) && !is_loaded(module) {
                modules.push(*module);
            }
        }
    }
    modules
}

/// The modules without which a restore tool fails as `stderr` says. `rules` is the text of its rules file.
pub(super) fn of_restore(
    variant: Variant,
    family: Family,
    stderr: &str,
    rules: &str,
    is_loaded: &impl Fn(&str) -> bool,
) -> Vec<&'static str> {
    if ["generation id", "Failed to initialize nft", "Protocol not supported"]
        .iter()
        .any(|text| stderr.contains(text))
    {
        return modules(&[NfTables], is_loaded);
    }
    if let Some(table) = missing_table(stderr) {
        return modules(&[Table(family, table)], is_loaded);
    }
    let mut missing = Vec::new();
    let lines = refused_lines(stderr, rules);
    if lines.iter().any(|line| line.adds_chain && line.table == Some("nat")) {
        missing.push(NatChain);
    }
    let mut extensions = unsupported_extensions(stderr);
    if extensions.is_empty() {
        // Tools before iptables 1.8.5 give no warning.
        let known = |name: &&str| MODULES.iter().any(|(missing, _)| *missing == Extension(name));
        extensions = lines.iter().flat_map(|line| extensions_of(line.text)).filter(known).collect();
    }
    if variant == Variant::Nft && !extensions.is_empty() && !is_loaded("nft_compat") {
        missing.push(Compat);
        extensions.clear();
    }
    missing.extend(extensions.into_iter().map(Extension));
    modules(&missing, is_loaded)
}

/// The modules without which the kernel refuses a transaction.
pub(super) fn of_commit(error: &CommitError, is_loaded: &impl Fn(&str) -> bool) -> Vec<&'static str> {
    if error.error.error.raw_os_error() != Some(libc::ENOENT) {
        return Vec::new();
    }
    // Chains of the type `filter` need no module.
    if let Some(Origin::Chain(..)) = error.origin.as_deref() {
        return modules(&[NatChain], is_loaded);
    }
    error.expression().map_or_else(Vec::new, |name| modules(&[Expression(&name)], is_loaded))
}

/// What to do about missing modules.
pub(super) fn hint(modules: &[&str]) -> String {
    format!(
        "the kernel or its security policy (SELinux) denies {}: load {} on the node",
        modules.join(", "),
        command(modules)
    )
}

/// The command that loads modules.
pub(super) fn command(modules: &[&str]) -> String {
    match modules {
        [module] => format!("it (`modprobe {module}`)"),
        _ => format!("them (`modprobe -a {}`)", modules.join(" ")),
    }
}

/// "unable to initialize table 'nat'", "can't initialize iptables table `nat'".
fn missing_table(stderr: &str) -> Option<&'static str> {
    let (_, behind) = ["unable to initialize table", "can't initialize"]
        .into_iter()
        .find_map(|complaint| stderr.split_once(complaint))?;
    ["nat", "mangle", "raw"].into_iter().find(|table| behind.contains(&format!("{table}'")))
}

/// "Extension REDIRECT revision 0 not supported", "Extension owner is not supported".
fn unsupported_extensions(stderr: &str) -> Vec<&str> {
    let names = stderr.lines().filter_map(|line| {
        let (name, why) = line.split_once("Extension ")?.1.split_once(' ')?;
        why.contains("not supported").then_some(name)
    });
    names.collect()
}

/// A line of the rules file that the kernel has not found something for.
struct Refused<'a> {
    text: &'a str,
    table: Option<&'a str>,
    adds_chain: bool,
}

/// "line 19: CHAIN_ADD failed (No such file or directory)", "line 24: RULE_APPEND failed (No such file or
/// directory)", "line 38 failed: No chain/target/match by that name". For a commit these are the lines of its
/// table.
fn refused_lines<'a>(stderr: &str, rules: &'a str) -> Vec<Refused<'a>> {
    let mut refused = Vec::new();
    let not_found = ["No such file or directory", "No chain/target/match by that name"];
    for complaint in stderr.lines().filter(|line| not_found.iter().any(|text| line.contains(text))) {
        let Some(number) = line_number(complaint) else { continue };
        let before: Vec<&str> = rules.lines().take(number).collect();
        if before.len() < number {
            continue;
        }
        let start = before.iter().rposition(|line| line.starts_with('*')).unwrap_or(0);
        let table = before.get(start).and_then(|line| line.strip_prefix('*'));
        let adds_chain = complaint.contains("CHAIN_ADD");
        let lines = match before.split_last() {
            Some((&"COMMIT", table)) => table.get(start..).unwrap_or_default(),
            Some((_, others)) => before.get(others.len()..).unwrap_or_default(),
            None => continue,
        };
        refused.extend(lines.iter().map(|text| Refused { text, table, adds_chain }));
    }
    refused
}

/// The number behind the first "line" that has one: "line 8 failed", "line 8: RULE_APPEND", "at line: 8".
pub(super) fn line_number(text: &str) -> Option<usize> {
    text.split("line").skip(1).find_map(|behind| {
        let digits = behind.trim_start_matches([':', ' ']).split(|c: char| !c.is_ascii_digit());
        digits.into_iter().next()?.parse().ok()
    })
}

/// The matches and targets of a line.
fn extensions_of(line: &str) -> impl Iterator<Item = &str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let names: Vec<&str> = words
        .windows(2)
        .filter_map(|pair| match pair {
            ["-m" | "-j", name] => Some(*name),
            _ => None,
        })
        .collect();
    names.into_iter()
}

#[cfg(test)]
mod tests;
