//! A stand-in for the kernel's tables: executes rules files as `iptables-restore --noflush` does, and prints
//! what `iptables-save` would. It knows nothing about what rules mean.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tables(BTreeMap<String, Table>);

/// Each rule with its handle, and the last handle: like nf_tables, a table numbers what is added to it.
#[derive(Clone, Debug, Default)]
struct Table {
    chains: BTreeMap<String, Vec<(u64, String)>>,
    handle: u64,
}

const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

impl Tables {
    /// Executes a whole file; panics where the tool would refuse.
    pub(crate) fn restore(&mut self, text: &str) {
        for section in self.sections(text) {
            self.commit(&section);
        }
    }

    /// Executes the file up to and including the given number of tables: a run that is killed in between.
    /// Returns whether that was all.
    pub(crate) fn restore_tables(&mut self, text: &str, count: usize) -> bool {
        let sections = self.sections(text);
        for section in sections.iter().take(count) {
            self.commit(section);
        }
        sections.len() <= count
    }

    fn sections(&self, text: &str) -> Vec<Vec<String>> {
        let mut sections: Vec<Vec<String>> = Vec::new();
        for line in text.lines() {
            if line.starts_with('*') {
                sections.push(Vec::new());
            }
            sections.last_mut().expect("the file begins with a table").push(line.to_owned());
        }
        sections
    }

    fn commit(&mut self, lines: &[String]) {
        assert_eq!(lines.last().map(String::as_str), Some("COMMIT"), "{lines:?}");
        let table = self.0.entry(lines[0][1..].to_owned()).or_default();
        for name in BUILT_IN {
            table.chains.entry(name.to_owned()).or_default();
        }
        for line in &lines[1..lines.len() - 1] {
            Self::execute(table, line);
        }
        for (name, rules) in &table.chains {
            for (_, rule) in rules {
                let target =
                    rule.rsplit("-j ").next().and_then(|rest| rest.split(' ').next()).unwrap_or_default();
                let missing = target.starts_with("ISTIO_") && !table.chains.contains_key(target);
                assert!(!missing, "{name} jumps to {target}, which does not exist");
            }
        }
    }

    fn execute(table: &mut Table, line: &str) {
        table.handle += 1;
        let handle = table.handle;
        let table = &mut table.chains;
        if let Some(declared) = line.strip_prefix(':') {
            let name = declared.split(' ').next().unwrap();
            assert!(!BUILT_IN.contains(&name), "{line}: the policy of a built-in chain is not ours");
            table.insert(name.to_owned(), Vec::new());
            return;
        }
        let mut words = line.splitn(3, ' ');
        let (command, chain, rest) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or_default());
        let rules = table.get_mut(chain).unwrap_or_else(|| panic!("{line}: no such chain"));
        match command {
            "-A" => rules.push((handle, rest.to_owned())),
            "-I" => match rest
                .split_once(' ')
                .and_then(|(number, rest)| Some((number.parse::<usize>().ok()?, rest)))
            {
                Some((number, rest)) => rules.insert(number - 1, (handle, rest.to_owned())),
                None => rules.insert(0, (handle, rest.to_owned())),
            },
            "-D" => match rest.parse::<usize>() {
                Ok(number) => drop(rules.remove(number - 1)),
                Err(_) => {
                    let at = rules.iter().position(|(_, rule)| rule == rest);
                    rules.remove(at.unwrap_or_else(|| panic!("{line}: no such rule")));
                }
            },
            "-F" => rules.clear(),
            "-X" => {
                assert!(rules.is_empty(), "{line}: the chain is not empty");
                table.remove(chain);
            }
            _ => panic!("{line}: unknown command"),
        }
    }

    /// The handles of the rules of each chain of a table.
    pub(crate) fn handles(&self, table: &str) -> BTreeMap<String, Vec<u64>> {
        let chains = self.0.get(table).into_iter().flat_map(|table| &table.chains);
        chains
            .map(|(chain, rules)| (chain.clone(), rules.iter().map(|(handle, _)| *handle).collect()))
            .collect()
    }

    /// Inserts a rule before the one at this place, or at the end; returns its handle.
    pub(crate) fn insert(&mut self, table: &str, chain: &str, place: usize, rule: &str) -> u64 {
        self.restore(&format!("*{table}\nCOMMIT\n"));
        let table = self.0.get_mut(table).unwrap();
        table.handle += 1;
        let rules = table.chains.get_mut(chain).unwrap();
        rules.insert(place.min(rules.len()), (table.handle, rule.to_owned()));
        table.handle
    }

    /// Whether a chain exists.
    pub(crate) fn has(&self, table: &str, chain: &str) -> bool {
        self.0.get(table).is_some_and(|table| table.chains.contains_key(chain))
    }

    /// Deletes a rule by handle.
    pub(crate) fn delete(&mut self, table: &str, chain: &str, handle: u64) {
        let rules = self.0.get_mut(table).unwrap().chains.get_mut(chain).unwrap();
        let at = rules.iter().position(|(own, _)| *own == handle);
        rules.remove(at.unwrap_or_else(|| panic!("{table} {chain}: no rule {handle}")));
    }

    /// What `iptables-save` prints.
    pub(crate) fn save(&self) -> String {
        let mut text = String::new();
        for (table, Table { chains, handle: _ }) in &self.0 {
            text += &format!("*{table}\n");
            for chain in chains.keys() {
                let policy = if BUILT_IN.contains(&chain.as_str()) { "ACCEPT" } else { "-" };
                text += &format!(":{chain} {policy} [0:0]\n");
            }
            for (chain, rules) in chains {
                for (_, rule) in rules {
                    text += &format!("-A {chain} {rule}\n");
                }
            }
            text += "COMMIT\n";
        }
        text
    }

    /// The contents of the tables, without empty ones, so that a table that only exists equals one that does
    /// not.
    pub(crate) fn contents(&self) -> BTreeMap<(String, String), Vec<String>> {
        let words =
            |rules: &[(u64, String)]| -> Vec<String> { rules.iter().map(|(_, rule)| rule.clone()).collect() };
        let all = self.0.iter().flat_map(|(table, Table { chains, handle: _ })| {
            chains.iter().map(move |(chain, rules)| ((table.clone(), chain.clone()), words(rules)))
        });
        all.filter(|((_, chain), rules)| !(BUILT_IN.contains(&chain.as_str()) && rules.is_empty())).collect()
    }
}
