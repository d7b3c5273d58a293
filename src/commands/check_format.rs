//! The output of `check`, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::apply::differences::Differences;
use crate::cli::Key;
use crate::config::{AsOptions, Output};
use crate::finding;
use crate::model::Backend;
use crate::reconcile::{ChainDifference, RuleDifference};
use crate::text::one_line;

/// The output of `check`. `read` are the options that were read from the live rules, where none were given.
#[must_use]
pub fn check(differences: &Differences, read: Option<&AsOptions>, output: Output) -> String {
    match output {
        Output::Text => check_text(differences, read),
        Output::Json => format!("{}\n", check_json(differences, read)),
    }
}

fn check_text(differences: &Differences, read: Option<&AsOptions>) -> String {
    let Differences { backend, chains, others, forms, is_untagged, .. } = differences;
    let (problems, others) = (differences.problems(), [others.as_slice(), forms].concat());
    if differences.has_no_rules && read.is_none() {
        let unread = differences.notes().map(|notice| format!("\nnote: {}\n", one_line(&notice)));
        let dormant = differences.dormant.first().map(|found| format!(": {}", found.problem.spec().title));
        let first = format!("no capture rule is live{}\n", dormant.unwrap_or_default());
        return [first, finding::list(&problems)].into_iter().chain(unread).collect();
    }
    let these = if read.is_some() { "the options below" } else { "these options" };
    let mut text = match (chains.len() + others.len(), finding::verdict(&problems)) {
        (0, None) => format!("equal: the live rules ({backend}) are those of {these}\n"),
        (0, Some(problems)) => format!("equal, but {problems}\n"),
        (differing, _) => {
            format!(
                "different from what {these} make: {}
",
                match differing {
                    1 => "1 chain or setting".to_owned(),
                    many => format!("{many} chains or settings"),
                }
            )
        }
    };
    text.push_str(&finding::list(&problems));
    // Writing to a String cannot fail.
    if let Some(options) = read {
        let nearest = if chains.is_empty() { "come from" } else { "are nearest to" };
        let _ = writeln!(text, "\nno options were given: the live rules {nearest}\n  {}", options.command());
        for (what, keys) in CAPTURING {
            if !options.iter().any(|(key, _)| keys.contains(&key)) {
                let _ = writeln!(text, "these capture no {what} traffic");
            }
        }
    }
    for (holder, ChainDifference { family, table, chain, rules }) in chains {
        let _ = writeln!(text, "\n{} {chain} ({family}, {holder})", table.name());
        for RuleDifference { is_missing, place, rule } in rules {
            let sign = if *is_missing { '+' } else { '-' };
            let _ = writeln!(text, "{sign} {place:>3}  {}", one_line(rule));
        }
    }
    if !chains.is_empty() {
        text.push_str("\n+ is missing in the kernel, - is not made by these options; the number is the position among our rules\n");
    }
    for other in others {
        let _ = writeln!(text, "\n{}", one_line(&other));
    }
    let remarks = is_untagged.then_some(UNTAGGED).into_iter().chain(ambiguous(*backend, read));
    for notice in differences.notes().chain(remarks.map(str::to_owned)) {
        let _ = writeln!(text, "\nnote: {}", one_line(&notice));
    }
    text
}

/// What is not a difference for packets.
const UNTAGGED: &str = "addresses, policy rules and routes are those of Istio's own binary: a run replaces them by the same ones with a tag";

/// What iptables lists alike, whichever of two programs wrote it.
const AMBIGUOUS: &str = "a rule of ISTIO_OUTPUT returns everything: iptables lists -x with a range of all addresses and a rule that another program \
     appended alike, as `-j RETURN`; give check the pod's options to tell them apart";

fn ambiguous(backend: Backend, read: Option<&AsOptions>) -> Option<&'static str> {
    let is_whole = |(key, text): (Key, &str)| {
        key == Key::ServiceExcludeCidr && text.split(',').any(|range| range.ends_with("/0"))
    };
    let reads = read.is_some_and(|options| options.iter().any(is_whole));
    (reads && backend != Backend::Native).then_some(AMBIGUOUS)
}

/// Options without which nothing is captured in this direction.
const CAPTURING: [(&str, &[Key]); 2] = [
    ("outbound", &[Key::ServiceCidr, Key::OutboundPorts, Key::RedirectDns]),
    ("inbound", &[Key::InboundPorts]),
];

fn check_json(differences: &Differences, read: Option<&AsOptions>) -> Value {
    let Differences { backend, chains, others, forms, is_untagged, .. } = differences;
    let remarks = is_untagged.then_some(UNTAGGED).into_iter().chain(ambiguous(*backend, read));
    let warnings = differences.problems_of_run().map(ToString::to_string);
    let notices: Vec<_> = warnings.chain(differences.notes()).chain(remarks.map(str::to_owned)).collect();
    let others = [others.as_slice(), forms].concat();
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
        "problems": finding::as_json(&differences.problems()),
        "options_of_rules": read.map(|options| options.iter().map(|(key, text)| (key.spec().name.to_owned(), json!(text))).collect::<Value>()),
        "backend": backend.to_string(),
        "chains": chains.iter().map(chain).collect::<Value>(),
        "others": others,
        "notices": notices,
    })
}
