//! A stand-in for the kernel's tables: executes rules files as `iptables-restore --noflush` does, and prints what
//! `iptables-save` would. It knows nothing about what rules mean.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables(BTreeMap<String, BTreeMap<String, Vec<String>>>);

const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

impl Tables {
    /// Executes a whole file; panics where the tool would refuse.
    pub(crate) fn restore(&mut self, text: &str) {
        for section in self.sections(text) {
            self.commit(&section);
        }
    }

    /// Executes the file up to and including the given number of tables: a run that is killed in between.
    pub(crate) fn restore_tables(&mut self, text: &str, count: usize) {
        for section in self.sections(text).into_iter().take(count) {
            self.commit(&section);
        }
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
            table.entry(name.to_owned()).or_default();
        }
        for line in &lines[1..lines.len() - 1] {
            Self::execute(table, line);
        }
        for (name, rules) in table.iter() {
            for rule in rules {
                let target =
                    rule.split("-j ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
                let missing = target.starts_with("ISTIO_") && !table.contains_key(target);
                assert!(!missing, "{name} jumps to {target}, which does not exist");
            }
        }
    }

    fn execute(table: &mut BTreeMap<String, Vec<String>>, line: &str) {
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
            "-A" => rules.push(rest.to_owned()),
            "-I" => match rest
                .split_once(' ')
                .and_then(|(number, rest)| Some((number.parse::<usize>().ok()?, rest)))
            {
                Some((number, rest)) => rules.insert(number - 1, rest.to_owned()),
                None => rules.insert(0, rest.to_owned()),
            },
            "-D" => match rest.parse::<usize>() {
                Ok(number) => drop(rules.remove(number - 1)),
                Err(_) => {
                    let at = rules.iter().position(|rule| rule == rest);
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

    /// What `iptables-save` prints.
    pub(crate) fn save(&self) -> String {
        let mut text = String::new();
        for (table, chains) in &self.0 {
            text += &format!("*{table}\n");
            for chain in chains.keys() {
                let policy = if BUILT_IN.contains(&chain.as_str()) { "ACCEPT" } else { "-" };
                text += &format!(":{chain} {policy} [0:0]\n");
            }
            for (chain, rules) in chains {
                for rule in rules {
                    text += &format!("-A {chain} {rule}\n");
                }
            }
            text += "COMMIT\n";
        }
        text
    }

    /// The same without empty tables, so that a table that only exists equals one that does not.
    pub(crate) fn contents(&self) -> BTreeMap<(String, String), Vec<String>> {
        let all = self.0.iter().flat_map(|(table, chains)| {
            chains.iter().map(move |(chain, rules)| ((table.clone(), chain.clone()), rules.clone()))
        });
        all.filter(|((_, chain), rules)| !(BUILT_IN.contains(&chain.as_str()) && rules.is_empty())).collect()
    }
}
