//! The tables in the documentation are generated from the program's own.
//!
//! After a change of the options, regenerate the tables with `make gallery`.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "reads and writes pages, and fails by panicking"
)]

use std::fmt::Write as _;
use std::fs;

use istio_iptables::cli::{Key, OptionSpec};
use istio_iptables::exit::Exit;

#[test]
fn exit_codes_in_the_readme_are_up_to_date() {
    generated_table_is_up_to_date("README.md", "exit codes", &exit_codes());
}

#[test]
fn options_page_is_up_to_date() {
    generated_table_is_up_to_date("docs/options.md", "options", &options());
}

#[test]
fn options_page_has_a_row_for_each_ip_family() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/options.md")).unwrap();
    for word in Key::IpFamily.spec().words {
        assert!(page.contains(&format!("\n| `{word}` | ")), "{word}");
    }
}

/// Compares the text between the markers `name` with `table`, or rewrites it when `UPDATE_GALLERY` is set.
fn generated_table_is_up_to_date(page: &str, name: &str, table: &str) {
    let path = format!("{}/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (head, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page} lacks {begin}"));
    let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("{page} lacks {end}"));
    let wanted = format!("{head}{begin}\n{table}\n{end}{tail}");
    if std::env::var_os("UPDATE_GALLERY").is_some() {
        fs::write(path, wanted).unwrap();
        return;
    }
    assert_eq!(text, wanted, "{page} does not match the code: run `make gallery`");
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
