//! `docs/annotations.md`, generated from the table.

use std::fmt::Write as _;

use super::table::{Row, Syntax, TABLE};

const HEAD: &str = "# Annotations and labels

Generated from the injector's own table (`injector/src/annotations/table.rs`); do not edit by hand.

A pod with an invalid value is denied; the message has the key, the value and what is accepted. The init binary's own parser
validates the capture annotations and the resulting arguments and environment of the init container, so a value accepted here
does not fail in the pod. Unknown keys under Istio's prefixes, keys without effect, and keys that no applied template reads, cause
warnings.

| Key | Where | Accepted | Default | Effect |
|---|---|---|---|---|
";

/// The whole document.
#[must_use]
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for Row { key, place, syntax, default, effect, .. } in TABLE {
        let accepted = accepted(*syntax).replace('|', "\\|");
        // Writing to a string does not fail.
        let _ = writeln!(text, "| `{key}` | {} | {accepted} | {default} | {effect} |", place.name());
    }
    text
}

fn accepted(syntax: Syntax) -> String {
    let words = |words: &[&str]| {
        let shown: Vec<String> =
            words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect();
        shown.join(", ")
    };
    match syntax {
        Syntax::Boolean => "a boolean".to_owned(),
        Syntax::Capture(key) => format!("a value of the init binary's `--{}`", key.spec().name),
        Syntax::EnvoyLevel => "a log level of Envoy; others give a warning".to_owned(),
        Syntax::EnvoyLevels => "`COMPONENT:LEVEL,...` of Envoy; others give a warning".to_owned(),
        Syntax::JsonObject => "a JSON object".to_owned(),
        Syntax::JsonNamed(text) => {
            let each = text.map(|key| format!(", each with `{key}`")).unwrap_or_default();
            format!("a JSON object of objects by name, or a JSON array of objects with `name`{each}")
        }
        Syntax::Number => "an integer".to_owned(),
        Syntax::PortOrZero => "a port, or `0` for none".to_owned(),
        Syntax::ProxyConfig => "a ProxyConfig as YAML".to_owned(),
        Syntax::Quantity => "a quantity".to_owned(),
        Syntax::ScrapeTargets => "`PORT:PATH,...`; the proxy's own ports are not accepted".to_owned(),
        Syntax::Text => "a string".to_owned(),
        Syntax::Word(list) => words(list),
        Syntax::WordOrIgnored(list) => format!("{}; others are ignored", words(list)),
        Syntax::SetByInjection => "set by injection".to_owned(),
    }
}
