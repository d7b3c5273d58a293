//! The result of `check`, as text and as JSON.

use std::fmt::Write as _;
use std::fs::File;
use std::io;

use istio_iptables::text::one_line;
use serde_json::{Value, json};

use super::own_capture::{self, OwnCapture};
use crate::decide::webhook_selectors::SUFFIX;
use crate::decide::{Decision, Reason};
use crate::files::Spool;

/// Known facts about one object.
#[derive(Clone, Debug)]
pub(super) struct CheckResult {
    pub(super) file: String,
    pub(super) title: String,
    pub(super) gate: Gate,
    pub(super) decision: Decision,
    pub(super) error: Option<String>,
    pub(super) added: Vec<String>,
    pub(super) capture: Vec<String>,
    /// Of a pod that is injected already: the revision, and what captures its traffic.
    pub(super) own: Option<(String, Option<OwnCapture>)>,
    pub(super) warnings: Vec<String>,
}

/// Whether the API server calls a webhook at all.
#[derive(Clone, Debug)]
pub(super) enum Gate {
    Called { name: String, also: Vec<String>, other_revision: Option<String>, conditions: Vec<String> },
    NotCalled(Vec<(String, Vec<String>)>),
    Unknown,
}

impl CheckResult {
    pub(super) fn injected(&self) -> bool {
        let would_be = || !matches!(self.gate, Gate::NotCalled(_)) && self.decision.inject();
        self.error.is_none() && (self.own.is_some() || would_be())
    }

    fn verdict(&self) -> String {
        if let Some((revision, own)) = &self.own {
            let by = own.as_ref().map_or("nothing: see the error", |own| own.by.as_str());
            return format!("injected, by revision {revision}; captured by {by}");
        }
        match (&self.gate, &self.error) {
            (Gate::NotCalled(_), _) => "not injected: no webhook is called for it".to_owned(),
            (_, Some(_)) if self.decision.inject() => "refused: see the error".to_owned(),
            _ => self.decision.to_string(),
        }
    }

    fn reason(&self) -> &'static str {
        if self.own.is_some() {
            return "injected";
        }
        match &self.gate {
            Gate::NotCalled(_) => Reason::Webhook.slug(),
            Gate::Called { .. } | Gate::Unknown => {
                self.decision.reason().map_or("", |step| step.reason.slug())
            }
        }
    }
}

/// How the results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Json,
    /// One line for each object.
    Summary,
    Text,
}

/// The results so far, as they are shown.
pub(super) struct Report {
    style: Style,
    pub(super) text: Spool,
    /// Whether a pod is not injected.
    pub(super) refused: bool,
    /// Whether an injection was tried.
    tried: bool,
}

impl Report {
    pub(super) fn new(style: Style) -> Self {
        Self { style, text: Spool::default(), refused: false, tried: false }
    }

    /// Adds a result; `paint` gives the text its colors.
    pub(super) fn add(&mut self, result: &CheckResult, paint: &dyn Fn(String) -> String) -> io::Result<()> {
        self.refused |= !result.injected();
        self.tried |= result.own.is_none();
        let text = match self.style {
            Style::Json => {
                // An item of the list: a string has no line break in it.
                let item = format!("{:#}", as_json(result)).replace('\n', "\n  ");
                format!("{}\n  {item}", if self.text.is_empty() { "[" } else { "," })
            }
            Style::Summary => paint(format!("{}: {}: {}\n", result.file, result.title, result.verdict())),
            Style::Text => paint(as_text(result)),
        };
        self.text.push(&text)
    }

    /// Ends the text.
    pub(super) fn finish(mut self) -> io::Result<(String, Option<File>)> {
        match self.style {
            Style::Json => self.text.push("\n]\n")?,
            Style::Text if self.tried => {
                self.text.push("ProxyConfig resources are not read: their changes are not shown.\n")?;
            }
            Style::Summary | Style::Text => {}
        }
        self.text.finish()
    }
}

fn as_text(result: &CheckResult) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}: {}", result.title, result.verdict());
    if let Some((_, own)) = &result.own {
        injected(&mut text, result, own.as_ref());
        return text;
    }
    webhook(&mut text, &result.gate);
    for step in &result.decision.steps {
        let mark = match step.verdict {
            Some(true) => "yes ",
            Some(false) => "no  ",
            None => "-   ",
        };
        let _ = writeln!(text, "  {mark}{:<17} {}", step.reason.slug(), step.found);
    }
    let mut lines = |head: &str, lines: &[String]| {
        for line in lines {
            let _ = writeln!(text, "  {head} {line}");
        }
    };
    lines("adds", &result.added);
    lines("captures with", &result.capture);
    lines("warning:", &result.warnings);
    for line in result.error.iter().flat_map(|error| error.lines()) {
        let _ = writeln!(text, "  error: {line}");
    }
    text
}

/// A pod that is injected already: its own options, where each comes from, and what they do.
fn injected(text: &mut String, result: &CheckResult, own: Option<&OwnCapture>) {
    // Writing to a string does not fail.
    for option in own.iter().flat_map(|own| &own.options) {
        let _ = writeln!(text, "  option   {}={}  ({})", option.name, one_line(&option.value), option.from);
    }
    for warning in &result.warnings {
        let _ = writeln!(text, "  warning: {warning}");
    }
    for line in result.error.iter().flat_map(|error| error.lines()) {
        let _ = writeln!(text, "  error: {line}");
    }
    for line in own.iter().flat_map(|own| own.table.lines()) {
        let _ = writeln!(text, "{}", format!("  {line}").trim_end());
    }
}

fn webhook(text: &mut String, gate: &Gate) {
    match gate {
        Gate::Called { name, also, other_revision, conditions } => {
            let _ = writeln!(text, "  -   {:<17} {name} is called", Reason::Webhook.slug());
            if !also.is_empty() {
                let names = also.join(", ");
                let _ = writeln!(text, "  warning: the pod is injected again, by {names}: the last one wins");
            }
            if !conditions.is_empty() {
                let names = conditions.join(", ");
                let _ = writeln!(
                    text,
                    "  warning: its matchConditions {names} are not evaluated: it may not be called"
                );
            }
            if let Some(revision) = other_revision {
                let _ =
                    writeln!(text, "  warning: that is revision {revision}; this config may not be its own");
            }
        }
        Gate::NotCalled(all) => {
            let _ = writeln!(text, "  no  {:<17} none is called for this pod", Reason::Webhook.slug());
            if all.is_empty() {
                let _ = writeln!(
                    text,
                    "      no MutatingWebhookConfiguration has a webhook for pods whose name ends with {SUFFIX}"
                );
            }
            for (name, unmet) in all {
                let _ = writeln!(text, "      {name}: {}", unmet.join("; "));
            }
        }
        Gate::Unknown => {
            let slug = Reason::Webhook.slug();
            let _ = writeln!(
                text,
                "  ?   {slug:<17} not checked: the labels of the namespace are unknown (--namespace-file)"
            );
        }
    }
}

fn as_json(result: &CheckResult) -> Value {
    // Of an injection that is not about to happen.
    let steps = result.decision.steps.iter().filter(|_| result.own.is_none());
    let steps: Vec<Value> = steps
        .map(|step| json!({"step": step.reason.slug(), "found": step.found, "verdict": step.verdict}))
        .collect();
    json!({
        "file": result.file,
        "object": result.title,
        "injected": result.injected(),
        "reason": result.reason(),
        "summary": result.verdict(),
        "webhook": if result.own.is_none() { webhook_json(&result.gate) } else { Value::Null },
        "steps": steps,
        "adds": result.added,
        "capture": result.capture,
        "own": result.own.as_ref().and_then(|(_, own)| own.as_ref()).map(own_capture::as_json),
        "warnings": result.warnings,
        "error": result.error,
    })
}

fn webhook_json(gate: &Gate) -> Value {
    match gate {
        Gate::Called { name, also, other_revision, conditions } => {
            json!({"called": true, "name": name, "also": also, "otherRevision": other_revision, "notEvaluated": conditions})
        }
        Gate::NotCalled(all) => {
            let why: Vec<Value> =
                all.iter().map(|(name, unmet)| json!({"name": name, "unmet": unmet})).collect();
            json!({"called": false, "webhooks": why})
        }
        Gate::Unknown => Value::Null,
    }
}
