//! Tries the options and rules of `docs/parity.md`.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use istio_iptables::cli::{self, Outcome};
use istio_iptables::config;
use istio_iptables::facts::Files;

/// The options in the first column of the table between two marks.
pub(crate) fn options(text: &str, mark: &str) -> Vec<String> {
    let begin = format!("<!-- {mark}: each row is tried by a test -->");
    let end = format!("<!-- end of {mark} -->");
    let (_, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no line {begin}"));
    let (table, _) = rest.split_once(&end).unwrap_or_else(|| panic!("no line {end}"));
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once("` |")?.0.to_owned());
    table.lines().filter_map(cell).collect()
}

/// Rules that are quoted after the name of the file that holds them.
pub(crate) fn quotes(text: &str) -> Vec<(String, String)> {
    let mut file = None;
    let mut quotes = Vec::new();
    for line in text.lines() {
        if let Some(fence) = line.strip_prefix("```") {
            file = fence.strip_prefix("text rules/").map(str::to_owned);
        } else if let Some(file) = &file {
            quotes.push((file.clone(), line.to_owned()));
        }
    }
    quotes
}

/// Words as a shell reads them, as far as single quotes go.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (at, part) in line.split('\'').enumerate() {
        for (number, piece) in part.split(if at % 2 == 0 { ' ' } else { '\0' }).enumerate() {
            if number > 0 {
                words.push(String::new());
            }
            words.last_mut().expect("there is one from the beginning").push_str(piece);
        }
    }
    words
}

/// Reads options as a run does; what is wrong with them, if anything is.
pub(crate) fn refusal(line: &str) -> Option<String> {
    let words = words(line);
    let variables = words.iter().take_while(|word| !word.starts_with('-'));
    let env = variables.map(|word| word.split_once('=').unwrap_or_else(|| panic!("{word} is no variable")));
    let flags = words.iter().skip_while(|word| !word.starts_with('-')).map(String::as_str);
    let parsed = cli::parse(
        ["istio-iptables"].into_iter().chain(flags).map(OsString::from),
        env.map(|(name, value)| (name.into(), value.into())),
        &mut io::empty(),
        &|_: &Path| Err(io::ErrorKind::NotFound.into()),
    );
    let raw = match parsed {
        Ok(Outcome::Run(raw)) => raw,
        Ok(Outcome::Print(text)) => panic!("{line} prints {text}"),
        Err(failure) => return Some(format!("{:?}", failure.errors)),
    };
    let files = Files {
        passwd: "nobody:x:65534:65534::/:\n".to_owned(),
        group: "nogroup:x:65534:\n".to_owned(),
        resolv_conf: Ok("nameserver 10.96.0.10\n".to_owned()),
    };
    config::resolve(&raw, &files).err().map(|errors| format!("{errors:?}"))
}

#[test]
fn words_are_split_as_a_shell_splits_them() {
    assert_eq!(words("-b '80 -s x' -i ''"), ["-b", "80 -s x", "-i", ""]);
    assert_eq!(words("A= -n"), ["A=", "-n"]);
}
