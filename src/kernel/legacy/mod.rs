//! The tables of legacy xtables, read by socket option.
//!
//! Running `iptables-legacy-save` to find out creates the tables it looks at; so does asking for a table by
//! socket option. Hence only tables that the kernel lists are read. The list is for root and its group only:
//! other users may ask for tables by name where they are going to write them anyway. A sandbox has no list,
//! and every table from the start: it is asked for each by name.
#![allow(unsafe_code, reason = "the table comes by getsockopt in structures that no safe wrapper knows")]

mod blob;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::{procfs, recording, sandbox};
use crate::model::Family;
use crate::ordered::Ordered as _;
use blob::{Info, Layout};

pub use blob::{ChainEntries, EXTENSION_HEAD, Entry, extension_name, text};

/// `XT_TABLE_MAXNAMELEN`: length of a table's name with its NUL.
const NAME_LENGTH: usize = 32;
/// The tables that there may be, in the order of the save tool.
const NAMES: [&str; 5] = ["security", "raw", "mangle", "nat", "filter"];

/// A legacy table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegacyTable {
    /// Number of rules of each built-in chain (the policy is none).
    pub built_in: BTreeMap<String, usize>,
    /// The built-in chains with the policy DROP.
    pub drops: BTreeSet<String>,
    /// Number of rules of each user chain.
    pub user: BTreeMap<String, usize>,
}

impl LegacyTable {
    /// Number of rules in a chain, built-in or not; `None` if there is no such chain.
    #[must_use]
    pub fn rules(&self, chain: &str) -> Option<usize> {
        self.user.get(chain).or_else(|| self.built_in.get(chain)).copied()
    }

    /// Number of rules of every chain.
    #[must_use]
    pub fn chains(&self) -> BTreeMap<String, usize> {
        let all = self.built_in.iter().chain(&self.user);
        all.map(|(name, rules)| (name.clone(), *rules)).into_map()
    }

    /// A line for each chain and its number of rules; `-` if it is not built in.
    fn lines(&self) -> String {
        let built_in = self.built_in.iter().map(|(name, rules)| {
            let policy = if self.drops.contains(name) { "DROP" } else { "ACCEPT" };
            format!("{policy} {rules} {name}\n")
        });
        built_in.chain(self.user.iter().map(|(name, rules)| format!("- {rules} {name}\n"))).collect()
    }

    fn of_lines(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(policy), Some(rules), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let chains = if policy == "-" { &mut table.user } else { &mut table.built_in };
            chains.insert(name.to_owned(), rules.parse().unwrap_or_default());
            if policy == "DROP" {
                table.drops.insert(name.to_owned());
            }
        }
        table
    }

    /// Whether the table holds a rule or a user-defined chain, ours or foreign.
    #[must_use]
    pub fn in_use(&self) -> bool {
        !self.user.is_empty() || self.built_in.values().any(|rules| *rules > 0)
    }
}

/// Names of the legacy tables that exist in this thread's network namespace; none if the kernel lacks legacy
/// xtables.
///
/// # Errors
/// The list may not be read, or `/proc` is not mounted, or a sandbox may not be asked: all are
/// [`io::ErrorKind::PermissionDenied`].
pub fn tables(family: Family) -> io::Result<Vec<String>> {
    let file = match family {
        Family::V4 => "net/ip_tables_names",
        Family::V6 => "net/ip6_tables_names",
    };
    match procfs::read_own_if_present(file)? {
        Some(names) => Ok(names.lines().map(str::to_owned).collect()),
        None if sandbox::is_sandbox() => by_question(family),
        None if procfs::is_mounted() => Ok(Vec::new()),
        None => Err(io::Error::new(io::ErrorKind::PermissionDenied, "/proc is not mounted")),
    }
}

/// The tables of a kernel that does not list them.
fn by_question(family: Family) -> io::Result<Vec<String>> {
    let text = recording::text(&format!("{family} tables of iptables-legacy"), &mut || {
        let mut found = String::new();
        for name in NAMES {
            if socket::exists(family, name)? {
                found += name;
                found.push('\n');
            }
        }
        Ok(found)
    })?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The contents of a legacy table; `None` if it does not exist, in which case it is not created.
///
/// # Errors
/// The kernel refuses: `EPERM` without CAP_NET_ADMIN.
pub fn table(family: Family, name: &str) -> io::Result<Option<LegacyTable>> {
    if tables(family)?.iter().any(|listed| listed == name) { read(family, name).map(Some) } else { Ok(None) }
}

/// The contents of these tables, whether they are listed or not. Those that do not exist are created; those
/// that the kernel cannot create are left out.
///
/// # Errors
/// As for [`table`].
pub fn by_name(family: Family, names: &[&str]) -> io::Result<BTreeMap<String, LegacyTable>> {
    let mut found = BTreeMap::new();
    for name in names {
        match read(family, name) {
            Ok(table) => drop(found.insert((*name).to_owned(), table)),
            Err(error) if socket::means_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn read(family: Family, name: &str) -> io::Result<LegacyTable> {
    if recording::is_off() {
        return read_table(family, name);
    }
    let fact = format!("{family} table {name} of iptables-legacy");
    Ok(LegacyTable::of_lines(&recording::text(&fact, &mut || Ok(read_table(family, name)?.lines()))?))
}

fn read_table(family: Family, name: &str) -> io::Result<LegacyTable> {
    let (info, entries) = socket::table(family, name)?;
    blob::read(Layout::of(family), &info, &entries)
}

/// Every legacy table that exists in a family, with what it holds.
///
/// # Errors
/// As for [`tables`] and [`table`].
pub fn all(family: Family) -> io::Result<BTreeMap<String, LegacyTable>> {
    let mut all = BTreeMap::new();
    for name in tables(family)? {
        let table = read(family, &name)?;
        all.insert(name, table);
    }
    Ok(all)
}

/// A table as the kernel holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawTable {
    /// The name of the table.
    pub name: String,
    info: Info,
    entries: Vec<u8>,
}

impl RawTable {
    /// Reads what the kernel returns: the description of a table, then its entries. `None` if that is too
    /// short.
    #[must_use]
    pub fn of_bytes(name: &str, bytes: &[u8]) -> Option<Self> {
        let (info, entries) = bytes.split_at_checked(Info::LENGTH)?;
        Some(Self { name: name.to_owned(), info: Info::parse(info)?, entries: entries.to_vec() })
    }

    /// The chains of the table, in the order of its entries.
    ///
    /// # Errors
    /// It is not whole.
    pub fn chains(&self, family: Family) -> io::Result<Vec<ChainEntries<'_>>> {
        blob::chains(Layout::of(family), &self.info, &self.entries)
    }
}

/// Every table of a family as the kernel holds it.
///
/// # Errors
/// As for [`tables`] and [`table`].
pub fn raw_tables(family: Family) -> io::Result<Vec<RawTable>> {
    let raw =
        |name: String| socket::table(family, &name).map(|(info, entries)| RawTable { name, info, entries });
    tables(family)?.into_iter().map(raw).collect()
}

/// Whether the kernel lists its tables, by which the save tool finds them, and returns matches with their
/// revisions: gVisor does neither.
#[must_use]
pub fn has_revisions() -> bool {
    !sandbox::is_sandbox() || procfs::own_exists("net/ip_tables_names")
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlab::in_new_namespace;
    use netlab::process::{run, run_with_input};

    fn tool(family: Family) -> &'static str {
        match family {
            Family::V4 => "iptables-legacy",
            Family::V6 => "ip6tables-legacy",
        }
    }

    /// The chains of a table according to `iptables-legacy-save`.
    fn saved(family: Family, table: &str) -> LegacyTable {
        let mut expected = LegacyTable::default();
        for line in run(&format!("{}-save", tool(family)), &["-t", table]).lines() {
            let mut words = line.split(' ');
            match (line.strip_prefix(':'), words.next()) {
                (Some(chain), _) => {
                    let mut words = chain.split(' ');
                    let name = words.next().unwrap().to_owned();
                    let policy = words.next().unwrap();
                    let built_in = policy != "-";
                    if policy == "DROP" {
                        expected.drops.insert(name.clone());
                    }
                    if built_in { &mut expected.built_in } else { &mut expected.user }.insert(name, 0);
                }
                (None, Some("-A")) => {
                    let name = words.next().unwrap();
                    let rules = expected.user.get_mut(name).or_else(|| expected.built_in.get_mut(name));
                    *rules.unwrap() += 1;
                }
                _ => {}
            }
        }
        expected
    }

    const RULES: &str = "*nat\n:ISTIO_OUTPUT - [0:0]\n:ISTIO_REDIRECT - [0:0]\n:EMPTY - [0:0]\n\
        -A OUTPUT -j ISTIO_OUTPUT\n-A PREROUTING -i eth7 -j RETURN\n-A PREROUTING -p tcp -j ISTIO_REDIRECT\n\
        -A ISTIO_OUTPUT -o lo -m owner --uid-owner 1337 -j RETURN\n-A ISTIO_OUTPUT -j ISTIO_REDIRECT\n\
        -A ISTIO_OUTPUT -p tcp -m multiport ! --dports 53,15008 -j RETURN\n\
        -A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n\
        *mangle\n:ISTIO_DIVERT - [0:0]\n-A ISTIO_DIVERT -j MARK --set-mark 1337\n-A ISTIO_DIVERT -j ACCEPT\n\
        -A FORWARD -j ISTIO_DIVERT\n-A POSTROUTING -j ACCEPT\nCOMMIT\n\
        *raw\n-A PREROUTING -p udp --sport 53 -j CT --zone 1\n-A OUTPUT -p udp --dport 53 -j CT --zone 2\nCOMMIT\n\
        *filter\n:INPUT DROP [0:0]\n:LAST - [0:0]\n-A FORWARD -j LAST\n-A LAST\nCOMMIT\n";

    #[test]
    fn counts_agree_with_iptables_legacy_save() {
        for family in Family::ALL {
            in_new_namespace(|| {
                run_with_input(&format!("{}-restore", tool(family)), &[], RULES);
                let found = all(family).unwrap();
                assert_eq!(found.keys().collect::<Vec<_>>(), ["filter", "mangle", "nat", "raw"]);
                for (name, table) in found {
                    assert_eq!(table, saved(family, &name), "{family} {name}");
                    assert!(table.in_use(), "{family} {name}");
                }
                let nat = table(family, "nat").unwrap().unwrap();
                assert_eq!(nat.rules("ISTIO_OUTPUT"), Some(3));
                assert_eq!(nat.rules("EMPTY"), Some(0));
                assert_eq!(nat.rules("NONE"), None);
                assert_eq!(nat.chains().len(), 7);
            });
        }
    }

    #[test]
    fn reading_creates_no_table() {
        in_new_namespace(|| {
            for family in Family::ALL {
                assert_eq!(table(family, "nat").unwrap(), None);
                assert_eq!(all(family).unwrap(), BTreeMap::new());
                assert_eq!(tables(family).unwrap(), [""; 0]);
            }
        });
    }

    #[test]
    fn tables_are_read_by_name_where_they_may_not_be_listed() {
        in_new_namespace(|| {
            run_with_input("iptables-legacy-restore", &[], RULES);
            let found = by_name(Family::V4, &["nat", "no-such-table", "mangle"]).unwrap();
            assert_eq!(found.keys().collect::<Vec<_>>(), ["mangle", "nat"]);
            for (name, table) in found {
                assert_eq!(table, saved(Family::V4, &name), "{name}");
            }
        });
    }

    #[test]
    fn table_that_was_only_read_is_not_in_use() {
        in_new_namespace(|| {
            run("iptables-legacy", &["-t", "nat", "-S"]);
            let nat = table(Family::V4, "nat").unwrap().unwrap();
            assert!(!nat.in_use());
            assert_eq!(nat, saved(Family::V4, "nat"));
            run("iptables-legacy", &["-t", "nat", "-N", "MINE"]);
            assert!(table(Family::V4, "nat").unwrap().unwrap().in_use());
        });
    }

    #[test]
    fn a_big_table_is_counted_too() {
        in_new_namespace(|| {
            let rules: String =
                (1..=5000).map(|port| format!("-A BIG -p tcp --dport {port} -j RETURN\n")).collect();
            run_with_input("iptables-legacy-restore", &[], &format!("*nat\n:BIG - [0:0]\n{rules}COMMIT\n"));
            assert_eq!(table(Family::V4, "nat").unwrap().unwrap().rules("BIG"), Some(5000));
        });
    }

    #[test]
    fn a_table_that_changes_meanwhile_is_read_again() {
        in_new_namespace(|| {
            let file = |rules: usize| format!("*nat\n{}COMMIT\n", "-A OUTPUT -j ACCEPT\n".repeat(rules));
            run_with_input("iptables-legacy-restore", &[], &file(1));
            std::thread::scope(|scope| {
                let changing = scope.spawn(|| {
                    for round in 0..60 {
                        let rules = if round % 2 == 0 { 300 } else { 1 };
                        run_with_input("iptables-legacy-restore", &[], &file(rules));
                    }
                });
                while !changing.is_finished() {
                    let rules = table(Family::V4, "nat").unwrap().unwrap().rules("OUTPUT");
                    assert!(matches!(rules, Some(1 | 300)), "{rules:?}");
                }
            });
        });
    }
}
