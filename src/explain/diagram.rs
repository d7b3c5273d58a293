//! The path of a packet as a diagram: the chains that it traverses, the rules that lead from one to the
//! next, and the verdict.

use super::walk::{Match, Step, Walk};
use crate::config::Diagram;
use crate::text::one_line;

/// Writes one language.
struct Writer {
    diagram: Diagram,
    text: String,
}

/// The diagram of a walk.
pub(super) fn diagram(diagram: Diagram, packet: &str, walk: &Walk<'_>, verdict: &str) -> String {
    let (begin, end) = match diagram {
        Diagram::Dot => ("digraph packet {\n  node [shape=box]\n", "}\n"),
        Diagram::Mermaid => ("flowchart TD\n", ""),
    };
    let mut writer = Writer { diagram, text: begin.to_owned() };
    writer.node("packet", packet);
    let (mut from, mut rule) = ("packet".to_owned(), String::new());
    let is_same = |one: &Step<'_>, next: &Step<'_>| {
        (one.hook, one.table, one.chain) == (next.hook, next.table, next.chain)
    };
    for (number, chain) in walk.steps.chunk_by(is_same).enumerate() {
        let Some(first) = chain.first() else { continue };
        let to = ["c", &number.to_string()].concat();
        writer.node(&to, &[first.table, " ", first.chain].concat());
        writer.edge(&from, &to, &rule);
        let matching = chain.iter().rev().find(|step| matches!(step.matches, Match::Matches));
        rule =
            matching.map_or_else(|| "no rule matches".to_owned(), |step| step.rule.rule.words().into_owned());
        from = to;
    }
    writer.node("verdict", verdict);
    writer.edge(&from, "verdict", &rule);
    writer.text + end
}

impl Writer {
    fn node(&mut self, name: &str, label: &str) {
        let label = self.quoted(label);
        let parts: [&str; 4] = match self.diagram {
            Diagram::Dot => [name, " [label=", &label, "]"],
            Diagram::Mermaid => [name, "[", &label, "]"],
        };
        self.line(&parts);
    }

    fn edge(&mut self, from: &str, to: &str, label: &str) {
        let quoted = self.quoted(label);
        let parts: [&str; 6] = match (self.diagram, label) {
            (Diagram::Dot, "") => [from, " -> ", to, "", "", ""],
            (Diagram::Dot, _) => [from, " -> ", to, " [label=", &quoted, "]"],
            (Diagram::Mermaid, "") => [from, " --> ", to, "", "", ""],
            (Diagram::Mermaid, _) => [from, " -->|", &quoted, "| ", to, ""],
        };
        self.line(&parts);
    }

    fn line(&mut self, parts: &[&str]) {
        self.text.push_str("  ");
        self.text.extend(parts.iter().copied());
        self.text.push('\n');
    }

    /// A label. Mermaid takes it for HTML, with its own mark for entities.
    fn quoted(&self, label: &str) -> String {
        let mut quoted = String::from('"');
        for c in one_line(label).chars() {
            match (self.diagram, c) {
                (Diagram::Dot, '"' | '\\') => quoted.extend(['\\', c]),
                (Diagram::Mermaid, '"') => quoted.push_str("#quot;"),
                (Diagram::Mermaid, '#') => quoted.push_str("#35;"),
                (Diagram::Mermaid, '&') => quoted.push_str("#amp;"),
                (Diagram::Mermaid, '<') => quoted.push_str("#lt;"),
                (Diagram::Mermaid, '>') => quoted.push_str("#gt;"),
                _ => quoted.push(c),
            }
        }
        quoted.push('"');
        quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_foreign_rules_cannot_end_a_label() {
        let quoted = |diagram| Writer { diagram, text: String::new() }.quoted("--comment \"a\\b\" <x>;#&\n");
        assert_eq!(quoted(Diagram::Dot), r#""--comment \"a\\b\" <x>;#&\\n""#);
        assert_eq!(quoted(Diagram::Mermaid), r#""--comment #quot;a\b#quot; #lt;x#gt;;#35;#amp;\n""#);
    }
}
