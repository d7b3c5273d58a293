//! The answers of `check` and `show`, as they are printed.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::apply::differences::Differences;
use crate::config::Output;
use crate::diff::{ChainDifference, RuleDifference};
use crate::model::Backend;
use crate::text::one_line;

/// The answer of `check`.
#[must_use]
pub fn check(differences: &Differences, output: Output) -> String {
    match output {
        Output::Text => check_text(differences),
        Output::Json => format!("{}\n", check_json(differences)),
    }
}

fn check_text(differences: &Differences) -> String {
    let Differences { backend, chains, others, notices } = differences;
    let mut text = match (chains.len() + others.len(), notices.len()) {
        (0, 0) => format!("equal: the live rules ({backend}) are those of these options\n"),
        (0, _) => format!(
            "the live rules ({backend}) are those of these options, but other rules may decide over the same packets\n"
        ),
        (count, _) => format!("different: {count} chains or settings are not as these options make them\n"),
    };
    // Writing to a String cannot fail.
    for (holder, ChainDifference { family, table, chain, rules }) in chains {
        let _ = writeln!(text, "\n{} {chain} ({family}, {holder})", table.name());
        for RuleDifference { is_missing, place, rule } in rules {
            let sign = if *is_missing { '+' } else { '-' };
            let _ = writeln!(text, "{sign} {place:>3}  {}", one_line(rule));
        }
    }
    if !chains.is_empty() {
        text.push_str("\n+ is missing in the kernel, - is not of these options; the number is its place among our rules\n");
    }
    for other in others {
        let _ = writeln!(text, "\n{}", one_line(other));
    }
    for notice in notices {
        let _ = writeln!(text, "\nnote: {}", one_line(notice));
    }
    text
}

fn check_json(differences: &Differences) -> Value {
    let Differences { backend, chains, others, notices } = differences;
    let rule = |RuleDifference { is_missing, place, rule }: &RuleDifference| json!({ "change": if *is_missing { "missing" } else { "unexpected" }, "place": place, "rule": rule });
    let chain = |(holder, found): &(Backend, ChainDifference)| {
        json!({
            "backend": holder.to_string(),
            "family": found.family.to_string(),
            "table": found.table.name(),
            "chain": found.chain,
            "rules": found.rules.iter().map(rule).collect::<Value>(),
        })
    };
    json!({
        "equal": differences.is_none(),
        "backend": backend.to_string(),
        "chains": chains.iter().map(chain).collect::<Value>(),
        "others": others,
        "notices": notices,
    })
}
