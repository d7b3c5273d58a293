//! What decides about rules asks for tests, effects and findings, never for words: a comment may hold any of
//! them.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "reads sources, and fails by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// What decides. `parse` reads words, once; `apply` also reads what tools print, and other commands read
/// files.
const DECIDING: [&str; 13] = [
    "commands/capture.rs",
    "commands/check.rs",
    "commands/explain.rs",
    "commands/guard",
    "commands/observe",
    "commands/validate.rs",
    "connections",
    "explain",
    "finding",
    "foreign",
    "live_rules",
    "plan",
    "routing",
];

/// Searches in text for a literal or for words that were put together.
const SEARCHES: [&str; 8] = [
    ".contains(\"",
    ".contains('",
    ".contains(&format!",
    ".starts_with(\"",
    ".ends_with(\"",
    ".find(\"",
    ".split(' ')",
    ".rsplit_once(\"",
];

#[test]
fn no_decision_searches_in_words() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut searches = Vec::new();
    let mut read = 0;
    for file in DECIDING.iter().flat_map(|name| files(&source.join(name))) {
        read += 1;
        searches.extend(
            searches_in(&fs::read_to_string(&file).expect("a source file"))
                .map(|line| format!("{}: {line}", file.display())),
        );
    }
    assert!(read > 80, "only {read} files were read");
    assert!(searches.is_empty(), "ask for a test, an effect or a finding:\n{}", searches.join("\n"));
}

#[test]
fn no_decision_compares_a_constant_sentence() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let texts: Vec<String> = DECIDING
        .iter()
        .flat_map(|name| files(&source.join(name)))
        .map(|file| fs::read_to_string(&file).expect("a source file"))
        .collect();
    let sentences: Vec<&str> = texts.iter().flat_map(|text| sentences(text)).collect();
    assert!(sentences.len() > 10, "only {} sentences were found", sentences.len());
    let compared: Vec<&str> = texts.iter().flat_map(|text| comparisons(text, &sentences)).collect();
    assert!(compared.is_empty(), "make it a value, and print the sentence of it:\n{}", compared.join("\n"));
}

#[test]
fn comparisons_are_found() {
    let text = "const LOST: &str = \"it is lost\";\nproblem.contains(LOST)\nif problem == LOST {\n";
    assert_eq!(comparisons(text, &sentences(text)).len(), 2);
}

/// The names of constants that are sentences: three words or more, or text that begins on the next line.
fn sentences(text: &str) -> Vec<&str> {
    let is_sentence = |value: &str| value.is_empty() || value.split_whitespace().count() > 2;
    let constants = text.lines().filter_map(|line| line.split_once("const ")?.1.split_once(": &str ="));
    constants.filter(|(_, value)| is_sentence(value.trim())).map(|(name, _)| name).collect()
}

/// The lines that compare a text with one of these constants, or search for it.
fn comparisons<'a>(text: &'a str, sentences: &[&str]) -> Vec<&'a str> {
    let is_compared = |line: &&str| {
        sentences.iter().any(|name| {
            [
                format!("== {name}"),
                format!("!= {name}"),
                format!("contains({name})"),
                format!("_with({name})"),
            ]
            .iter()
            .any(|form| line.contains(form))
        })
    };
    text.lines().filter(is_compared).map(str::trim).collect()
}

#[test]
fn searches_are_found() {
    let text = "let a = sentence.contains(\"may not\");\n#[cfg(test)]\nassert!(text.contains(\"x\"));\n";
    assert_eq!(searches_in(text).count(), 1);
}

/// The lines with a search, without unit tests.
fn searches_in(text: &str) -> impl Iterator<Item = String> {
    let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let found = code.filter(|line| SEARCHES.iter().any(|search| line.contains(search)));
    found.map(|line| line.trim().to_owned()).collect::<Vec<_>>().into_iter()
}

fn files(path: &Path) -> Vec<PathBuf> {
    let is_test = |path: &Path| path.file_stem().is_some_and(|name| name == "tests");
    if path.is_file() {
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        return Some(path.to_owned()).filter(|path| is_source && !is_test(path)).into_iter().collect();
    }
    let entries =
        fs::read_dir(path).expect("a folder of sources").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| !is_test(path)).flat_map(|path| files(&path)).collect()
}
