//! Rules files in which one rule is missing, exchanged with the next one, or changed.

/// A rules file and what was done to it.
#[derive(Clone, Debug)]
pub(crate) struct Mutated {
    pub(crate) what: String,
    pub(crate) text: String,
}

/// Every mutation of a rules file.
pub(crate) fn all(text: &str) -> Vec<Mutated> {
    let lines: Vec<&str> = text.lines().collect();
    let mut mutated = Vec::new();
    let mut add = |what: String, lines: &[String]| {
        mutated.push(Mutated { what, text: lines.iter().map(|line| format!("{line}\n")).collect() });
    };
    let owned = || lines.iter().map(|line| (*line).to_owned()).collect::<Vec<String>>();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_rule(line)) {
        let mut without = owned();
        without.remove(at);
        add(format!("without {line}"), &without);
        if lines.get(at + 1).is_some_and(|next| is_rule(next) && chain(next) == chain(line)) {
            let mut swapped = owned();
            swapped.swap(at, at + 1);
            add(format!("{line} behind the next one"), &swapped);
        }
        for changed in changes(line) {
            let mut with = owned();
            add(format!("{changed} for {line}"), {
                with[at] = changed;
                &with
            });
        }
    }
    mutated
}

fn is_rule(line: &str) -> bool {
    line.starts_with("-A ") || line.starts_with("-I ")
}

/// `-A CHAIN` of a rule.
fn chain(line: &str) -> Vec<&str> {
    line.split(' ').take(2).collect()
}

/// The rule with another constant, test or target.
fn changes(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut changed = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        let with = |value: String| {
            let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            words[at + 1] = value;
            words.join(" ")
        };
        match pair {
            [
                "--dport" | "--sport" | "--to-ports" | "--on-port" | "--uid-owner" | "--gid-owner" | "--zone",
                number,
            ] => {
                changed.extend(number.parse::<u32>().map(|number| with((number + 1).to_string())));
            }
            ["--mark" | "--set-mark" | "--set-xmark", _] => changed.push(with("0x7".to_owned())),
            ["-j", "RETURN"] => changed.push(with("ACCEPT".to_owned())),
            ["-j", "ISTIO_REDIRECT" | "ISTIO_IN_REDIRECT"] => changed.push(with("RETURN".to_owned())),
            ["-d" | "-s", range] => {
                if let Some((network, length)) = range.split_once('/') {
                    let other = if length == "32" || length == "128" { "30" } else { "32" };
                    changed.push(with(format!("{network}/{other}")));
                }
            }
            ["-o" | "-i", _] => changed.push(with("eth7".to_owned())),
            _ => {}
        }
    }
    changed
}

/// Numbers that follow from a seed (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).expect("64 bits")).expect("less than `end`")
    }

    pub(crate) fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}
