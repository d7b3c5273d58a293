//! The list of recorded cases in docs/parity-cases.md: what was run, without what was recorded of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::recorded::{cases, words};

const PAGE: &str = "docs/parity-cases.md";
const BEGINS: &str = "<!-- the list is made by `make gallery`, where the recorded cases are at hand -->\n";
/// Columns of a line, behind the indent.
const WIDTH: usize = 110;

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{word}'") }
}

/// Variables by name, then options; broken between words.
fn command(env: &Value, args: &[String]) -> String {
    // Whether an object of `serde_json` keeps the order of the text depends on the other packages of a build.
    let env: BTreeMap<_, _> = env.as_object().into_iter().flatten().collect();
    let env =
        env.into_iter().map(|(name, value)| format!("{name}={}", quoted(value.as_str().unwrap_or_default())));
    let all: Vec<String> = env.chain(args.iter().map(|word| quoted(word))).collect();
    let mut lines = vec![String::new()];
    for word in all {
        let last = lines.last_mut().expect("a line");
        if !last.is_empty() && last.len() + word.len() >= WIDTH {
            lines.push(word);
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(&word);
        }
    }
    lines.join("\n    ")
}

/// What the case has besides options: addresses, and what is there before.
fn circumstances(case: &Value) -> String {
    let mut text = words(&case["addrs"]).join(" ");
    for (key, what) in [
        ("passwd", "with the user istio-proxy"),
        ("before", "after an earlier run"),
        ("foreign", "beside rules of Docker"),
    ] {
        if !case[key].is_null() {
            text.push_str(&format!(", {what}"));
        }
    }
    text
}

/// Mode and families of what was recorded.
fn outcome(state: &Value) -> String {
    if state["exit"] != 0 {
        return format!("fails with exit code {}", state["exit"]);
    }
    let families = [("v4", "IPv4"), ("v6", "IPv6")].into_iter().filter(|(key, _)| !state[key].is_null());
    let families: Vec<&str> = families.map(|(_, name)| name).collect();
    let is_tproxy = state.to_string().contains("-j TPROXY");
    match families.as_slice() {
        [] => "no rules".to_owned(),
        names => format!("{}, {}", if is_tproxy { "TPROXY" } else { "REDIRECT" }, names.join(" and ")),
    }
}

#[test]
fn every_recorded_case_is_listed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).expect(PAGE);
    let (before, listed) = page.split_once(BEGINS).expect("the line that begins the list");
    let Some(cases) = cases() else {
        let count = listed.lines().filter(|line| !line.starts_with(' ') && line.ends_with(')')).count();
        return assert!(before.contains(&format!("{count} cases")), "{count}");
    };
    let mut text = String::from("\n```text\n");
    let mut number = 0;
    for case in cases.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
        let name = case["name"].as_str().expect("a name");
        let (outcome, around) = (outcome(&case["expect"]["any"]), circumstances(&case));
        let command = command(&case["env"], &words(&case["args"]));
        let command = if command.is_empty() { "(no options)" } else { &command };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {outcome} ({around})\n    {command}");
        number += 1;
    }
    text.push_str("```\n");
    let wanted = format!("{before}{BEGINS}{text}");
    if std::env::var_os("UPDATE_GALLERY").is_some() {
        fs::write(&path, &wanted).expect(PAGE);
    } else {
        assert_eq!(page, wanted, "make gallery writes {PAGE}");
    }
    assert!(before.contains(&format!("{number} cases")), "{number}");
}
