//! The output of `nft list ruleset`, as a [`Program`].
//!
//! Everything that is read is a test or a statement that the kernel has as well; a rule with any other word is kept as one that
//! cannot be evaluated.

mod listing;
mod rule;
mod values;

use std::fmt;

use super::program::{BaseChain, Chain, Program, joined};
use crate::model::{Family, Hook};
use listing::{Listed, ListedChain, Table};
use rule::Reader;

/// Why a text is not a listing of nftables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftError {
    /// What was found.
    what: String,
}

impl NftError {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl fmt::Display for NftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for NftError {}

/// The rules that packets of one family meet.
pub(super) fn program(family: Family, text: &str) -> Result<Program, NftError> {
    let mut program = Program::default();
    let mut bases: Vec<(i32, Hook, BaseChain)> = Vec::new();
    for table in listing::tables(text)? {
        let is_met = match table.family.as_str() {
            "inet" => true,
            "ip" => family == Family::V4,
            "ip6" => family == Family::V6,
            // Of bridges and devices: a pod's packets may pass them.
            _ => {
                program
                    .unwalked
                    .extend(unwalked(&table, table.chains.iter().filter(|chain| chain.base.is_some())));
                false
            }
        };
        if table.is_of_iptables() {
            return Err(NftError::new(format!(
                "table {} {} has rules of iptables-nft, of which nft does not list everything: take the output of iptables-save",
                table.family, table.name
            )));
        }
        if is_met && !table.is_dormant {
            add(family, &table, &mut program, &mut bases);
        }
    }
    program.bases = bases.into_iter().map(|(_, hook, base)| (hook, base)).collect();
    let actions =
        program.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| rule.actions.windows(2));
    program.routed_marks = actions.filter_map(super::iptables::routed_mark).collect();
    Ok(program)
}

fn add(family: Family, table: &Table, program: &mut Program, bases: &mut Vec<(i32, Hook, BaseChain)>) {
    let first = program.chains.len();
    let number = |name: &str| table.chains.iter().position(|chain| chain.name == name).map(|at| first + at);
    let elements =
        |name: &str| table.sets.iter().find(|set| set.name == name).map(|set| set.elements.as_slice());
    for (at, chain) in table.chains.iter().enumerate() {
        let rules =
            chain.rules.iter().filter_map(|words| Reader::read(family, words, &number, &elements)).collect();
        // A chain that is jumped to may change the packet: its rules are not joined.
        let name = format!("{} {} {}", table.family, table.name, chain.name);
        program.chains.push(Chain { name, rules: joined(rules, |_| false) });
        let Some(base) = &chain.base else { continue };
        let hook = match base.hook.as_str() {
            "prerouting" => Hook::Prerouting,
            "output" => Hook::Output,
            _ => {
                program.unwalked.extend(unwalked(table, std::iter::once(chain)));
                continue;
            }
        };
        let is_nat = base.kind == "nat";
        let at_place = bases.partition_point(|(priority, ..)| *priority <= base.priority);
        bases.insert(
            at_place,
            (base.priority, hook, BaseChain { is_nat, drops: base.drops, chain: first + at }),
        );
    }
}

/// What chains hold that are not walked.
fn unwalked<'a>(table: &Table, chains: impl Iterator<Item = &'a ListedChain>) -> Vec<String> {
    let of = |chain: &ListedChain| -> Vec<String> {
        let name = format!("{} {} {}", table.family, table.name, chain.name);
        let drops = chain.base.as_ref().is_some_and(|base| base.drops);
        let policy = drops.then(|| format!("{name} has the policy drop"));
        chain.rules.iter().map(|words| format!("{name} {}", Listed(words))).chain(policy).collect()
    };
    chains.flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_iptables_are_refused() {
        let listing = |name: &str, rule: &str| {
            format!(
                "table ip {name} {{\n\tchain PREROUTING {{\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\
                 \t\t{rule}\n\t}}\n}}\n"
            )
        };
        let refused = |name: &str, rule: &str| {
            let error = program(Family::V4, &listing(name, rule)).err();
            error.is_some_and(|error| error.to_string().contains("iptables-save"))
        };
        // As nft lists a REDIRECT of ip6tables.
        assert!(refused("nat", "meta l4proto tcp counter packets 0 bytes 0 "));
        assert!(!refused("nat", "meta l4proto tcp redirect to :15006"));
        assert!(!refused("agent", "meta l4proto tcp counter packets 0 bytes 0 redirect to :15006"));
    }
}
