//! The diagnosis as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Diagnosis, Severity};

/// As text: the worst first, each with the command that fixes it.
#[must_use]
pub fn as_text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for finding in &diagnosis.findings {
        let problem = finding.problem;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:8} {}: {}", problem.severity(), problem.slug(), finding.object);
        if let Some(owner) = diagnosis.owner(finding) {
            let _ = writeln!(text, "  {:6} {owner}", "owner");
        }
        for (word, line) in [("seen", &finding.seen), ("cause", &finding.cause), ("fix", &finding.fix)] {
            let _ = writeln!(text, "  {word:6} {line}");
        }
        text.push('\n');
    }
    for what in &diagnosis.unchecked {
        let _ = writeln!(text, "not checked: {what}");
    }
    let of = |severity: Severity| count(diagnosis, severity);
    let (broken, warnings, notes) = (of(Severity::Broken), of(Severity::Warning), of(Severity::Note));
    let _ = match diagnosis.findings.len() {
        0 => writeln!(text, "no problem found in {} objects", diagnosis.objects),
        _ => writeln!(
            text,
            "{} objects: {broken} broken, {warnings} warnings, {notes} notes",
            diagnosis.objects
        ),
    };
    text
}

/// As JSON.
#[must_use]
pub fn as_json(diagnosis: &Diagnosis) -> String {
    let findings: Vec<Value> = diagnosis
        .findings
        .iter()
        .map(|finding| {
            json!({
                "severity": finding.problem.severity().to_string(), "problem": finding.problem.slug(),
                "object": finding.object, "seen": finding.seen, "cause": finding.cause, "fix": finding.fix,
                "owner": diagnosis.owner(finding),
            })
        })
        .collect();
    let whole = json!({
        "broken": diagnosis.broken(), "objects": diagnosis.objects, "findings": findings,
        "unchecked": diagnosis.unchecked,
    });
    format!("{whole:#}\n")
}

fn count(diagnosis: &Diagnosis, severity: Severity) -> usize {
    diagnosis.findings.iter().filter(|finding| finding.problem.severity() == severity).count()
}
