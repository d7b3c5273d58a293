//! The blocks of a listing: tables with their sets and chains, and the words of each rule.

use std::fmt;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::NftError;

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) family: String,
    pub(super) name: String,
    pub(super) is_dormant: bool,
    pub(super) sets: Vec<ListedSet>,
    pub(super) chains: Vec<ListedChain>,
}

impl Table {
    /// Whether iptables-nft wrote it: by its name, those of its base chains, and the counter that each of its rules has.
    pub(super) fn is_of_iptables(&self) -> bool {
        const TABLES: [&str; 5] = ["raw", "mangle", "nat", "filter", "security"];
        const CHAINS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
        let has_name = ["ip", "ip6"].contains(&self.family.as_str()) && TABLES.contains(&self.name.as_str());
        let mut bases = self.chains.iter().filter(|chain| chain.base.is_some());
        let rules: Vec<_> = self.chains.iter().flat_map(|chain| &chain.rules).collect();
        has_name
            && bases.all(|chain| CHAINS.contains(&chain.name.as_str()))
            && !rules.is_empty()
            && rules.iter().all(|words| words.iter().any(|word| word == "counter"))
    }
}

#[derive(Clone, Debug)]
pub(super) struct ListedSet {
    pub(super) name: String,
    pub(super) elements: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct ListedChain {
    pub(super) name: String,
    pub(super) base: Option<ListedBase>,
    /// The words of each rule.
    pub(super) rules: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
pub(super) struct ListedBase {
    pub(super) kind: String,
    pub(super) hook: String,
    pub(super) priority: i32,
    pub(super) drops: bool,
}

/// The words of a rule, as they were.
pub(super) struct Listed<'a>(pub(super) &'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A comment says why a rule exists, and its counter changes.
        let mut words = self.0.iter().map(String::as_str).peekable();
        let mut shown = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "comment" => drop(words.next()),
                "packets" | "bytes" => drop(words.next()),
                "counter" => {}
                word => shown.push(word),
            }
        }
        f.write_str(&shown.join(" "))
    }
}

/// A word that ends a line.
const LINE: &str = "\n";

/// Words, blocks and ends of lines; a quoted word keeps its first quote.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | ';' => words.push(LINE.to_owned()),
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            '"' => {
                let mut word = String::from('"');
                word.extend(chars.by_ref().take_while(|c| *c != '"'));
                words.push(word);
            }
            '{' | '}' | ',' => words.push(c.to_string()),
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                while let Some(next) = chars.next_if(|c| !c.is_whitespace() && !"{},;\"".contains(*c)) {
                    word.push(next);
                }
                words.push(word);
            }
        }
    }
    words
}

type Words = Peekable<IntoIter<String>>;

/// The tables of a listing.
pub(super) fn tables(text: &str) -> Result<Vec<Table>, NftError> {
    let mut words = words(text).into_iter().peekable();
    let mut tables = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            LINE => {}
            "table" => tables.push(table(&mut words)?),
            _ => return Err(NftError::new(format!("`{word}` where a table begins"))),
        }
    }
    Ok(tables)
}

fn table(words: &mut Words) -> Result<Table, NftError> {
    let head = until_block(words)?;
    let (family, name) = match head.as_slice() {
        [family, name] => (family.clone(), name.clone()),
        [name] => ("ip".to_owned(), name.clone()),
        _ => return Err(NftError::new("a table without a family and a name")),
    };
    let mut table = Table { family, name, ..Table::default() };
    while let Some(word) = words.next() {
        match word.as_str() {
            LINE => {}
            "}" => return Ok(table),
            "set" => {
                let name = until_block(words)?.join(" ");
                table.sets.push(ListedSet { name, elements: elements(&block(words)?) });
            }
            "chain" => {
                let name = until_block(words)?.join(" ");
                table.chains.push(chain(name, &block(words)?));
            }
            "flags" => table.is_dormant |= rest_of_line(words).iter().any(|flag| flag == "dormant"),
            // Maps, counters, flow tables: rules that use them are not evaluated.
            _ => {
                if rest_of_line(words).last().is_some_and(|word| word == "{") {
                    block(words)?;
                }
            }
        }
    }
    Err(NftError::new("a table without its end"))
}

fn until_block(words: &mut Words) -> Result<Vec<String>, NftError> {
    let mut head = Vec::new();
    for word in words.by_ref() {
        match word.as_str() {
            "{" => return Ok(head),
            LINE => break,
            _ => head.push(word),
        }
    }
    Err(NftError::new(format!("`{}` without {{", head.join(" "))))
}

fn rest_of_line(words: &mut Words) -> Vec<String> {
    let mut line = Vec::new();
    while let Some(word) = words.next_if(|word| word != LINE && word != "}") {
        line.push(word);
        if line.last().is_some_and(|word| word == "{") {
            break;
        }
    }
    line
}

/// The lines up to the end of a block. What is in braces belongs to one line.
fn block(words: &mut Words) -> Result<Vec<Vec<String>>, NftError> {
    let (mut lines, mut line, mut depth) = (Vec::new(), Vec::new(), 0_usize);
    for word in words.by_ref() {
        match (word.as_str(), depth) {
            (LINE, 0) => lines.push(std::mem::take(&mut line)),
            (LINE, _) => {}
            ("}", 0) => {
                lines.push(line);
                lines.retain(|line| !line.is_empty());
                return Ok(lines);
            }
            ("{", _) => {
                depth += 1;
                line.push(word);
            }
            ("}", _) => {
                depth -= 1;
                line.push(word);
            }
            _ => line.push(word),
        }
    }
    Err(NftError::new("a block without its end"))
}

/// The elements of a set, each as its words; one of several words is kept as such.
fn elements(lines: &[Vec<String>]) -> Vec<String> {
    let of = |line: &Vec<String>| match line.as_slice() {
        [elements, is, open, rest @ .., _] if elements == "elements" && is == "=" && open == "{" => {
            Some(listed(rest))
        }
        _ => None,
    };
    lines.iter().find_map(of).unwrap_or_default()
}

/// What is between commas.
pub(super) fn listed(words: &[String]) -> Vec<String> {
    let items = words.split(|word| word == ",").map(|words| words.join(" "));
    items.filter(|item| !item.is_empty()).collect()
}

fn chain(name: String, lines: &[Vec<String>]) -> ListedChain {
    let mut chain = ListedChain { name, base: None, rules: Vec::new() };
    for line in lines {
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["type", kind, "hook", hook, rest @ ..] => {
                let behind = rest.iter().position(|word| *word == "priority").map_or(rest.len(), |at| at + 1);
                let priority = rest.get(behind..).and_then(|words| priority(words, hook));
                chain.base = Some(ListedBase {
                    kind: (*kind).to_owned(),
                    hook: (*hook).to_owned(),
                    priority: priority.unwrap_or_default(),
                    drops: false,
                });
            }
            ["policy", policy] => {
                if let Some(base) = &mut chain.base {
                    base.drops = *policy == "drop";
                }
            }
            ["comment", _] => {}
            _ => chain.rules.push(line.clone()),
        }
    }
    chain
}

/// A number, or a name with or without a distance.
fn priority(words: &[&str], hook: &str) -> Option<i32> {
    let named = |name: &str| match name {
        "raw" => Some(-300),
        "mangle" => Some(-150),
        "dstnat" if hook == "output" => Some(-100),
        "dstnat" => Some(-100),
        "filter" => Some(0),
        "security" => Some(50),
        "srcnat" => Some(100),
        number => number.parse().ok(),
    };
    match words {
        [name] => named(name),
        [name, "+", distance] => named(name)?.checked_add(distance.parse().ok()?),
        [name, "-", distance] => named(name)?.checked_sub(distance.parse().ok()?),
        _ => None,
    }
}
