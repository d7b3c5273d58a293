//! A doc comment names its subject: it can be read alone in rustdoc's lists and search results. Comments
//! have at most 110 columns, as code has.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "reads sources, and fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// What a doc comment must not begin with: the noun is in another item, and rustdoc's lists and search
/// results show the comment without it.
const PRONOUNS: [&str; 20] = [
    "All of them",
    "Both",
    "Each of them",
    "It",
    "Its",
    "Likewise",
    "One of them",
    "Ours",
    "Such",
    "That",
    "The other",
    "The same",
    "Their",
    "Theirs",
    "Them",
    "These",
    "They",
    "This is",
    "This one",
    "Those",
];

/// The most columns of a line of comment; rustfmt sees to those of code.
const COLUMNS: usize = 110;

#[test]
fn doc_comments_name_their_subject() {
    let found: Vec<String> = sources().iter().flat_map(|(file, text)| without_subject(file, text)).collect();
    assert!(found.is_empty(), "begin with the noun, which may be in another item:\n{}", found.join("\n"));
}

#[test]
fn doc_comments_without_a_subject_are_found() {
    let found = |text: &str| without_subject(Path::new("x.rs"), text).len();
    let wrong =
        ["It is gone.", "Its mark.", "The same, owned.", "Those of `explain`.", "Both.", "All of them."];
    for words in wrong {
        assert_eq!(
            found(&format!("pub struct A {{\n    /// {words}\n    ///\n    /// More.\n    b: u8,\n}}\n")),
            1,
            "{words}"
        );
        assert_eq!(found(&format!("//! {words}\n\nmod a;\n")), 1, "{words}");
    }
    let right =
        ["Items.", "This program ends.", "The mark of the packet.\n/// Its value is one.", "Bothersome."];
    for words in right {
        assert_eq!(found(&format!("/// {words}\nconst A: u8 = 1;\n// It is a number.\n")), 0, "{words}");
    }
}

#[test]
fn comments_have_at_most_110_columns() {
    let found: Vec<String> = sources().iter().flat_map(|(file, text)| long_comments(file, text)).collect();
    assert!(found.is_empty(), "more than {COLUMNS} columns:\n{}", found.join("\n"));
}

#[test]
fn long_comments_are_found() {
    let found = |text: &str| long_comments(Path::new("x.rs"), text).len();
    for mark in ["///", "//!", "//"] {
        let line = |columns: usize| {
            let start = format!("    {mark} a ");
            let rest = "b".repeat(columns - start.len());
            format!("{start}{rest}\n")
        };
        assert_eq!([found(&line(COLUMNS)), found(&line(COLUMNS + 1))], [0, 1], "{mark}");
        assert_eq!(found(&line(COLUMNS).replace('b', "ä")), 0, "columns are not bytes");
        let (long, fence) = (line(200), format!("    {mark} ```\n"));
        assert_eq!(found(&format!("{fence}{long}{fence}")), 0, "code");
        assert_eq!(found(&format!("{fence}{fence}{long}")), 1, "behind code");
        assert_eq!(found(&format!("{fence}let a = 1;\n{long}")), 1, "code ends with the comment");
    }
    let long = "a".repeat(200);
    for text in [
        format!("/// <https://x.example/{long}>"),
        format!("/// | a | {long} |"),
        format!("f(); // a {long}"),
    ] {
        assert_eq!(found(&text), 0, "{text}");
    }
}

/// The doc comments that begin with a pronoun, with their places.
fn without_subject(file: &Path, text: &str) -> Vec<String> {
    let begins_with = |words: &str, pronoun: &&str| {
        let rest = words.strip_prefix(*pronoun);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let (mut found, mut before) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        let mark = comment(line).map(|(mark, _)| mark).filter(|mark| *mark != "//");
        let is_first = before != mark;
        before = mark;
        let Some((_, words)) = comment(line).filter(|_| mark.is_some() && is_first) else { continue };
        if PRONOUNS.iter().any(|pronoun| begins_with(words, pronoun)) {
            found.push(format!("{}:{}: {words}", file.display(), number + 1));
        }
    }
    found
}

/// The lines of comment with more columns, with their places: not code, tables and what cannot be broken.
fn long_comments(file: &Path, text: &str) -> Vec<String> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        let words = comment(line).map_or("", |(_, words)| words);
        is_code = comment(line).is_some() && is_code != words.starts_with("```");
        let can_be_broken = words.contains(' ') && !words.starts_with('|') && !is_code;
        if can_be_broken && line.chars().count() > COLUMNS {
            found.push(format!("{}:{}: {words}", file.display(), number + 1));
        }
    }
    found
}

/// The mark of a comment that has a line of its own, and its words.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let mark = ["///", "//!", "//"].into_iter().find(|mark| line.trim_start().starts_with(mark))?;
    Some((mark, line.trim_start().strip_prefix(mark)?.trim()))
}

/// The sources of all crates of the workspace, with their texts.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_source = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "rs");
    let text = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        (file, text)
    };
    let sources: Vec<(PathBuf, String)> = files(root).into_iter().filter(is_source).map(text).collect();
    for folder in ["src", "cni", "crates", "injector", "install-cni", "tests"] {
        let is_here = |(file, _): &&(PathBuf, String)| file.starts_with(root.join(folder));
        assert!(sources.iter().filter(is_here).count() > 5, "the sources of {folder}");
    }
    sources
}

/// Every file below a folder, but those that builds make.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true if name == "target" || name == ".git" => {}
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}
