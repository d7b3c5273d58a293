//! Errors of `iptables-restore` in a saved rule set: tables, chains, targets and protocols that do not exist.

use std::collections::BTreeSet;

use super::{chain_and_words, words};

/// The built-in chains of a table; `None` if there is no such table.
fn built_in(table: &str) -> Option<&'static [&'static str]> {
    Some(match table {
        "raw" => &["PREROUTING", "OUTPUT"],
        "nat" => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
        "mangle" => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
        "filter" | "security" => &["INPUT", "FORWARD", "OUTPUT"],
        _ => return None,
    })
}

/// The targets of iptables.
const TARGETS: &str = " ACCEPT AUDIT CHECKSUM CLASSIFY CLUSTERIP CONNMARK CONNSECMARK CT DNAT DNPT DROP DSCP ECN HL HMARK IDLETIMER \
     LED LOG MARK MASQUERADE NETMAP NFLOG NFQUEUE NOTRACK QUEUE RATEEST REDIRECT REJECT RETURN SECMARK SET SNAT SNPT SYNPROXY \
     TCPMSS TCPOPTSTRIP TEE TOS TPROXY TRACE TTL ULOG ";

/// Whether iptables has a target of this name, which no chain can have then.
pub(super) fn is_target(name: &str) -> bool {
    TARGETS.split(' ').any(|target| target == name)
}

/// Checks the text of one family.
///
/// # Errors
/// The first rule or table that would be refused, with what is accepted.
pub fn refused(text: &str) -> Result<(), String> {
    let (mut table, mut chains, mut rules) = ("", BTreeSet::new(), Vec::new());
    for record in words::records(text) {
        if let Some(name) = record.strip_prefix('*') {
            table = name.trim();
            if built_in(table).is_none() {
                return Err(format!("table {table}: raw, mangle, nat, filter and security are accepted"));
            }
            (chains, rules) = Default::default();
        } else if let Some(declared) = record.strip_prefix(':') {
            chains.extend(declared.split(' ').next());
        } else if record.starts_with("COMMIT") {
            for (chain, rule) in rules.drain(..) {
                of_rule(table, &chains, chain, rule)?;
            }
        } else {
            rules.extend(chain_and_words(record));
        }
    }
    Ok(())
}

fn of_rule(table: &str, chains: &BTreeSet<&str>, chain: &str, rule: &str) -> Result<(), String> {
    let built_in = built_in(table).unwrap_or_default();
    let refuse = |what: String| Err(format!("table {table}, `-A {chain} {rule}`: {what}"));
    if !built_in.contains(&chain) && !chains.contains(chain) {
        return refuse(format!("chain {chain} is not declared: `:{chain} -` before it is accepted"));
    }
    let words = words::split(rule).unwrap_or_default();
    if let [option, name, ..] = words::target_of(&words) {
        let is_known = option == "-j" && is_target(name);
        if built_in.contains(&name.as_str()) || !(is_known || chains.contains(name.as_str())) {
            return refuse(format!("{option} {name}: a declared chain or a target of iptables is accepted"));
        }
    }
    let protocol = words.windows(2).find_map(|pair| match pair {
        [option, value] if option == "-p" && value.starts_with(|c: char| c.is_ascii_digit()) => Some(value),
        _ => None,
    });
    let is_negated = words.windows(2).any(|pair| pair == ["!", "-p"]);
    match protocol {
        Some(value) if is_negated && super::protocol_number(value) == Some(0) => {
            refuse(format!("! -p {value}: no packet has none: another protocol is accepted"))
        }
        Some(value) if super::protocol_number(value).is_none() => {
            refuse(format!("-p {value}: a number from 0 to 255 or a name is accepted"))
        }
        _ => Ok(()),
    }
}
