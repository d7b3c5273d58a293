//! Forms of command lines that people type and clap does not have.

use std::ffi::{OsStr, OsString};

use super::options::Key;
use super::raw::SubCommand;

/// `help SUBCOMMAND` and `version` become options, and `-o json` of a sub-command becomes `--output json`: no
/// port has such a name.
pub(super) fn normalize(arguments: &mut Vec<OsString>) {
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("version") if arguments.len() == 2 => replace(arguments, 1, "--version"),
        Some("help") => {
            arguments.remove(1);
            arguments.truncate(2);
            arguments.push("--help".into());
        }
        _ => {}
    }
    let is_report =
        |sub: SubCommand| sub != SubCommand::Apply && arguments.iter().any(|word| word == sub.name());
    if !SubCommand::ALL.into_iter().any(is_report) {
        return;
    }
    // A list of ports has no letters: such a word is a format or a file, if need be one that does not exist.
    let is_format = |word: Option<&OsString>| {
        let bytes = word.map(|word| word.as_encoded_bytes()).unwrap_or_default();
        bytes.iter().any(u8::is_ascii_alphabetic) && !bytes.starts_with(b"-")
    };
    for at in 1..arguments.len() {
        if arguments.get(at).is_some_and(|word| word == "-o") && is_format(arguments.get(at + 1)) {
            replace(arguments, at, "--output");
        }
    }
}

/// How a pod is asked about of which only the name is known.
pub(crate) const ASK_ABOUT_A_POD: &str = "`kubectl capture explain pod/NAME` asks about a pod of the cluster";

/// What people type who know other programs, and what is meant here: in each line words without their dashes,
/// or `OPTION=VALUE`, and the hint.
const OTHER_WORDS: &str = include_str!("typed.txt");

/// What an unknown option or word is here, as a hint: one of [`OTHER_WORDS`], or an option whose name, or
/// annotation, has the same parts in another order or notation. `of` is the word as the parser has it.
pub(super) fn meant(written: &str, of: &str) -> Option<String> {
    let name = written.split_once('=').map_or(written, |(name, _)| name);
    let name = name.rsplit_once('/').map_or(name, |(_, name)| name).trim_start_matches('-');
    if let Some(hint) = other_word(name).or_else(|| other_word(of)) {
        return Some(hint.to_owned());
    }
    let letters = letters(name);
    let has_them = |known: &str| letters != [0; 26] && self::letters(known) == letters;
    let is_it = |key: &&Key| {
        let spec = key.spec();
        let annotation = spec.annotation.and_then(|key| key.rsplit_once('/'));
        spec.has_flag() && (has_them(spec.name) || annotation.is_some_and(|(_, name)| has_them(name)))
    };
    Key::ALL.iter().find(is_it).map(|key| format!("did you mean {key}?"))
}

/// How often a name has each letter, without those of parts that people leave out, and of plurals.
fn letters(name: &str) -> [u8; 26] {
    let name = name.strip_prefix("istio-").unwrap_or(name);
    let name = name.strip_prefix("local-").unwrap_or(name);
    let mut letters = [0; 26];
    for letter in name.bytes().map(|letter| letter.to_ascii_lowercase()).filter(|letter| *letter != b's') {
        let at = usize::from(letter.wrapping_sub(b'a'));
        if let Some(count) = letters.get_mut(at) {
            *count = u8::saturating_add(*count, 1);
        }
    }
    letters
}

/// What is meant by a word too many: a pod, or the port of the address before it.
pub(super) fn beside(word: &str, arguments: &[OsString]) -> Option<&'static str> {
    if arguments.iter().any(|word| word.as_encoded_bytes().starts_with(b"pod/")) {
        return Some(ASK_ABOUT_A_POD);
    }
    let is_port = word.bytes().all(|digit| digit.is_ascii_digit());
    (is_port && arguments.iter().any(|word| word == SubCommand::Explain.name()))
        .then_some("address and port are one word: ADDRESS:PORT")
}

/// What is meant by a word that is too many for a sub-command, or another word for one.
pub(super) fn extra(word: &str, arguments: &[OsString]) -> Option<String> {
    let has = |sub: SubCommand| arguments.iter().skip(1).any(|word| word == sub.name());
    if has(SubCommand::Diff) {
        return Some("diff compares two rule sets".to_owned());
    }
    let of_bundle = || format!("did you mean `istio-iptables bundle > {word}`?");
    meant(word, word).or_else(|| has(SubCommand::Bundle).then(of_bundle))
}

/// What a word is here that other programs have for the same, as a hint.
pub(crate) fn other_word(word: &str) -> Option<&'static str> {
    let word = word.trim_start_matches('-');
    let rows = OTHER_WORDS.lines().filter_map(|row| row.split_once(": "));
    rows.filter(|(words, _)| words.split(' ').any(|known| known == word)).map(|(_, hint)| hint).next()
}

fn replace(arguments: &mut [OsString], at: usize, with: &str) {
    if let Some(word) = arguments.get_mut(at) {
        OsStr::new(with).clone_into(word);
    }
}

/// The flag of a list whose value is followed by this word: a shell has replaced `*` by the names of files.
pub(super) fn unquoted<'a>(word: &str, arguments: &'a [OsString]) -> Option<&'a str> {
    const LISTS: [&str; 4] = ["-i", "-b", "--istio-service-cidr", "--istio-inbound-ports"];
    let at = arguments.iter().position(|argument| argument == word)?;
    let flag = arguments.get(at.checked_sub(2)?)?.to_str()?;
    LISTS.contains(&flag).then_some(flag)
}

/// Whether a name differs from a known one by one character, or by two that are swapped.
#[must_use]
pub fn is_misspelt(name: &str, known: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (name.chars().collect(), known.chars().collect());
    let start = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (one, other) = (one.get(start..).unwrap_or_default(), other.get(start..).unwrap_or_default());
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (one, other) =
        (one.get(..one.len() - end).unwrap_or_default(), other.get(..other.len() - end).unwrap_or_default());
    match (one, other) {
        ([], [_]) | ([_], [] | [_]) => true,
        ([a, b], [c, d]) => a == d && b == c,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(line: &str) -> String {
        let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        normalize(&mut words);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_that_people_type_become_options() {
        for (typed, meant) in [
            ("x version", "x --version"),
            ("x help", "x --help"),
            ("x help explain", "x explain --help"),
            ("x explain -o json", "x explain --output json"),
            ("x explain --live -o html", "x explain --live --output html"),
            ("x check -o JSON", "x check --output JSON"),
            ("x bundle -o pod.json", "x bundle --output pod.json"),
            ("x explain -o 9000", "x explain -o 9000"),
            ("x explain -o -i", "x explain -o -i"),
            ("x -o json", "x -o json"),
            ("x apply -o json", "x apply -o json"),
        ] {
            assert_eq!(normalized(typed), meant);
        }
    }

    #[test]
    fn a_word_has_one_meaning_and_a_hint_one_line() {
        let mut seen = std::collections::HashSet::new();
        for row in OTHER_WORDS.lines() {
            let (words, hint) = row.split_once(": ").unwrap();
            assert!(hint.len() <= 160 && !hint.ends_with('.'), "{row}");
            for word in words.split(' ') {
                assert!(seen.insert(word) && !word.starts_with('-'), "{word}");
                assert_eq!(other_word(word), Some(hint));
                let of_option = word.split_once('=').map(|(name, _)| name);
                let is_option = |name: &str| {
                    Key::by_name(name).is_some()
                        || SubCommand::ALL
                            .iter()
                            .any(|sub| sub.own_options().iter().any(|key| key.name() == name))
                };
                assert!(of_option.is_none_or(is_option), "{word}");
            }
        }
        assert_eq!(other_word("--health"), other_word("status"));
        assert_eq!(other_word(""), None);
    }

    #[test]
    fn names_with_one_wrong_character_are_misspelt() {
        for name in
            ["ISTIO_INBOUND_PORT", "ISTIO_INBUOND_PORTS", "ISTIO_INBOUND_PORTSS", "ISTIO_INBOUND_PORTX"]
        {
            assert!(is_misspelt(name, "ISTIO_INBOUND_PORTS"), "{name}");
        }
        for name in ["ISTIO_INBOUND_PORTS", "ISTIO_OUTBOUND_PORTS", "ISTIO_META_X", ""] {
            assert!(!is_misspelt(name, "ISTIO_INBOUND_PORTS"), "{name}");
        }
    }
}
