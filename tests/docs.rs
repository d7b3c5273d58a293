//! The documentation says what the program does: its tables are made from the program's own.
//!
//! After a change of the options, write the tables anew with `make gallery`.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "reads and writes the README, and fails by panicking"
)]

use std::fmt::Write as _;
use std::fs;

use istio_iptables::cli::{Key, OptionSpec};
use istio_iptables::exit::Exit;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

#[test]
fn the_readme_is_up_to_date() {
    let readme = fs::read_to_string(README).unwrap();
    let wanted = rewritten(&readme);
    if std::env::var_os("UPDATE_GALLERY").is_some() {
        fs::write(README, wanted).unwrap();
        return;
    }
    assert_eq!(readme, wanted, "README.md is behind the options: `make gallery` writes its tables anew");
}

fn rewritten(readme: &str) -> String {
    between("exit codes", &exit_codes(), &between("options", &options(), readme))
}

/// The text with what stands between the marks of that name replaced.
fn between(name: &str, new: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (head, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("README.md lacks {begin}"));
    let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("README.md lacks {end}"));
    format!("{head}{begin}\n{new}\n{end}{tail}")
}

fn options() -> String {
    let mut text = String::from("| Option | Variable | Default | Meaning |\n|---|---|---|---|\n");
    let mut heading = None;
    for spec in Key::ALL.iter().map(|key| key.spec()) {
        if heading.replace(spec.heading) != Some(spec.heading) {
            writeln!(text, "| **{}** | | | |", spec.heading.title()).unwrap();
        }
        writeln!(text, "| {} | {} | {} | {} |", flag(spec), variables(spec), default(spec), spec.help)
            .unwrap();
    }
    text
}

fn flag(spec: &OptionSpec) -> String {
    if !spec.has_flag() {
        return String::new();
    }
    let short = spec.short.map(|short| format!(" `-{short}`")).unwrap_or_default();
    let alias = spec.alias.map(|alias| format!(" `--{alias}`")).unwrap_or_default();
    format!("`--{}`{short}{alias}", spec.name)
}

/// Only what cannot be derived from the flag's name.
fn variables(spec: &OptionSpec) -> String {
    let derived = spec.name.to_ascii_uppercase().replace('-', "_");
    let names = spec.variable_names();
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown = names.iter().filter(|name| !spec.has_flag() || **name != derived);
    shown.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
}

fn default(spec: &OptionSpec) -> String {
    if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) }
}

fn exit_codes() -> String {
    let mut text = String::from("| Code | Meaning |\n|---|---|\n");
    for (exit, meaning) in Exit::ALL {
        writeln!(text, "| {} | {meaning} |", exit.code()).unwrap();
    }
    text
}
