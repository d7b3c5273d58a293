//! Costs of connections as Markdown.

use std::fmt::Write as _;

use super::{Backend, Case, LENGTHS, List};
use crate::measure::Spread;

/// Rows are backends and lists, columns lengths.
pub(crate) fn markdown(cases: &[Case]) -> String {
    let mut text = String::from(
        "| | no list | relative to no rules | 100 | 1,000 | 10,000 |\n|---|---|---|---|---|---|\n",
    );
    let Some(bare) = case(cases, Backend::NoRules, List::Ranges, 0) else { return text };
    let _ = writeln!(text, "| no rules | {} | 1.00x | | | |", cell(bare, None));
    for backend in Backend::WITH_RULES {
        let Some(empty) = case(cases, backend, List::Ranges, 0) else { continue };
        for list in [List::Ranges, List::Ports] {
            let cells: Vec<String> = LENGTHS
                .iter()
                .filter(|length| **length > 0)
                .filter_map(|length| case(cases, backend, list, *length))
                .map(|long| cell(long, Some(empty)))
                .collect();
            let _ = writeln!(
                text,
                "| {}, {} | {} | {:.2}x | {} |",
                backend.name(),
                list.name(),
                cell(empty, None),
                empty.ratio(bare),
                cells.join(" | ")
            );
        }
    }
    text
}

/// The case with this backend and list; without a list all lists are the same.
pub(crate) fn case(cases: &[Case], backend: Backend, list: List, length: u32) -> Option<&Case> {
    cases.iter().find(|c| c.backend == backend && c.length == length && (c.list == list || length == 0))
}

fn cell(case: &Case, empty: Option<&Case>) -> String {
    let Spread { median, least, most } = case.microseconds();
    let ratio = empty.map_or_else(String::new, |empty| format!("**{:.2}x**, ", case.ratio(empty)));
    format!("{ratio}{median:.1} ({least:.1}–{most:.1})")
}
