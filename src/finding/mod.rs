//! Findings: what may keep packets of the mesh from where they belong, as values until they are printed.

mod problem;
mod subject;

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

use crate::model::{Backend, Family, Variant};
use crate::text::one_line;

pub use problem::{Problem, Spec};
pub use subject::{RuleId, Subject};

/// A finding, for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding.
    pub problem: Problem,
    /// What is wrong, in one sentence.
    pub cause: String,
    /// What the log adds to the cause, with the characters that separate both; empty if the cause says all.
    pub advice: String,
    /// What the command of the fix is about, as [`Spec::fix`] takes it.
    pub subject: String,
    /// What causes it.
    pub about: Vec<Subject>,
    /// The family that it is about, if that is one.
    pub family: Option<Family>,
    /// The variant of iptables that holds the rules in tables without one in their name.
    pub variant: Option<Variant>,
    /// The table that the command of the fix changes, as in [`RuleId::table`], if that is not the table of
    /// what causes it.
    pub fixed_in: Option<String>,
    /// The table that the command changes, if a running program owns it (`flags owner`): the kernel lets no
    /// other change it.
    pub owned_table: Option<String>,
}

impl Finding {
    /// A finding whose cause says all.
    #[must_use]
    pub fn new(problem: Problem, cause: impl Into<String>) -> Self {
        Self {
            problem,
            cause: cause.into(),
            advice: String::new(),
            subject: String::new(),
            about: Vec::new(),
            family: None,
            variant: None,
            fixed_in: None,
            owned_table: None,
        }
    }

    /// Adds the family.
    #[must_use]
    pub fn family(self, family: Family) -> Self {
        Self { family: Some(family), ..self }
    }

    /// Adds what the log says about the fix.
    #[must_use]
    pub fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    /// Adds what the command of the fix is about.
    #[must_use]
    pub fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), ..self }
    }

    /// Adds the table that the command of the fix changes.
    #[must_use]
    pub fn fixed_in(self, table: Option<String>) -> Self {
        Self { fixed_in: table, ..self }
    }

    /// Adds what causes it.
    #[must_use]
    pub fn about(self, about: impl IntoIterator<Item = Subject>) -> Self {
        Self { about: about.into_iter().collect(), ..self }
    }

    /// Whether one of the subjects is the cause.
    #[must_use]
    pub fn is_about_any(&self, subjects: &[Subject]) -> bool {
        subjects.iter().any(|subject| self.about.contains(subject))
    }

    /// Whether the cause is a rule or the policy of the chain that the other finding is about as a whole:
    /// what is known of a rule is worth more than what its chain may do.
    #[must_use]
    pub fn is_within(&self, other: &Self, backend: Backend) -> bool {
        let has_rule = |chain: &Subject| self.about.iter().any(|about| chain.has(about, backend));
        let is_of_family = other.family.is_none() || other.family == self.family;
        is_of_family && !other.about.is_empty() && other.about.iter().all(has_rule)
    }

    /// Whether both are about one rule or policy, and the same command mends both.
    fn is_mended_with(&self, other: &Self) -> bool {
        let is_rule = |about: &&Subject| matches!(about, Subject::Rule(_) | Subject::Policy { .. });
        let rule = self.about.iter().find(is_rule);
        rule.is_some() && rule == other.about.iter().find(is_rule) && self.fix() == other.fix()
    }

    /// The fix, with its command: that of the kind, or the one that deletes the first rule that is the cause.
    #[must_use]
    pub fn fix(&self) -> String {
        let Spec { fix, .. } = self.problem.spec();
        let subject = match &self.subject {
            none if none.is_empty() => self
                .about
                .iter()
                .find_map(|about| about.removal(self.family, self.variant))
                .unwrap_or_default(),
            given => given.clone(),
        };
        match (fix.split_once("{}"), &self.owned_table) {
            (Some(_), Some(table)) => one_line(&format!(
                "the table {table} belongs to a running program (flags owner), and only that program can change it: \
                 accept this traffic in its configuration"
            ))
            .into_owned(),
            (None, _) => fix.to_owned(),
            (Some(_), None) if subject.is_empty() => {
                "istio-iptables explain --live --to ADDRESS:PORT shows the rules that such a packet meets"
                    .to_owned()
            }
            (Some((before, after)), None) => one_line(&format!("{before}{subject}{after}")).into_owned(),
        }
    }
}

/// The cause, and the advice of the log.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.cause, self.advice)
    }
}

/// The findings as problems: the most harmful kind first, each cause once, and each rule with one fix. The
/// commands of fixes are for rules that `backend` holds; those of the tables in `owned` only their owners can
/// change.
#[must_use]
pub fn by_harm(
    findings: impl IntoIterator<Item = Finding>,
    backend: Backend,
    owned: &[String],
) -> Vec<Finding> {
    let variant = if let Backend::Iptables(variant) = backend { Some(variant) } else { None };
    let mut sorted: Vec<Finding> = Vec::new();
    for finding in findings {
        if !sorted.iter().any(|known| known.cause == finding.cause) {
            let at = sorted.partition_point(|known| known.problem <= finding.problem);
            let table = finding.fixed_in.as_deref().or_else(|| finding.about.iter().find_map(Subject::table));
            let owned_table = table.and_then(|table| owned.iter().find(|name| *name == table)).cloned();
            sorted.insert(at, Finding { variant, owned_table, ..finding });
        }
    }
    let mut distinct: Vec<Finding> = Vec::new();
    for finding in sorted {
        if !distinct.iter().any(|known| known.is_mended_with(&finding)) {
            distinct.push(finding);
        }
    }
    distinct
}

/// The first line of a report with problems, at most 100 characters.
#[must_use]
pub fn verdict(problems: &[Finding]) -> Option<String> {
    let first = problems.first()?.problem.spec().title;
    Some(match problems.len() {
        1 => format!("1 problem: {first}"),
        many => format!("{many} problems, first: {first}"),
    })
}

/// The numbered list of a report; empty without problems.
#[must_use]
pub fn list(problems: &[Finding]) -> String {
    let mut text = String::new();
    if !problems.is_empty() {
        text.push_str("\nProblems\n");
    }
    for (number, finding) in problems.iter().enumerate() {
        let (number, id) = (number + 1, finding.problem.spec().id);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{number:>2}. {id}: {}\n    fix: {}", one_line(&finding.cause), finding.fix());
    }
    text
}

/// The list of a report, for programs.
#[must_use]
pub fn as_json(problems: &[Finding]) -> Value {
    let of = |finding: &Finding| json!({ "id": finding.problem.spec().id, "cause": one_line(&finding.cause), "fix": finding.fix() });
    problems.iter().map(of).collect()
}
