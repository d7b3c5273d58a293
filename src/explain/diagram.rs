//! The path of a packet as a Mermaid diagram: the chains that it traverses, the rules that lead from one to
//! the next, and the verdict.

use super::walk::{Match, Step, Walk};
use crate::text::one_line;

/// The diagram of a walk.
pub(super) fn diagram(packet: &str, walk: &Walk<'_>, verdict: &str) -> String {
    let mut text = "flowchart TD\n".to_owned();
    node(&mut text, "packet", packet);
    let (mut from, mut rule) = ("packet".to_owned(), String::new());
    let is_same = |one: &Step<'_>, next: &Step<'_>| {
        (one.hook, one.table, one.chain) == (next.hook, next.table, next.chain)
    };
    for (number, chain) in walk.steps.chunk_by(is_same).enumerate() {
        let Some(first) = chain.first() else { continue };
        let to = format!("c{number}");
        node(&mut text, &to, &format!("{} {}", first.table, first.chain));
        edge(&mut text, &from, &to, &rule);
        let matching = chain.iter().rev().find(|step| matches!(step.matches, Match::Matches));
        rule =
            matching.map_or_else(|| "no rule matches".to_owned(), |step| step.rule.rule.words().into_owned());
        from = to;
    }
    node(&mut text, "verdict", verdict);
    edge(&mut text, &from, "verdict", &rule);
    text
}

fn node(text: &mut String, name: &str, label: &str) {
    text.push_str(&format!("  {name}[{}]\n", quoted(label)));
}

fn edge(text: &mut String, from: &str, to: &str, label: &str) {
    let arrow = if label.is_empty() { "-->".to_owned() } else { format!("-->|{}|", quoted(label)) };
    text.push_str(&format!("  {from} {arrow} {to}\n"));
}

/// A label. Mermaid takes it for HTML, with its own mark for entities.
fn quoted(label: &str) -> String {
    let mut quoted = String::from('"');
    for c in one_line(label).chars() {
        match c {
            '"' => quoted.push_str("#quot;"),
            '#' => quoted.push_str("#35;"),
            '&' => quoted.push_str("#amp;"),
            '<' => quoted.push_str("#lt;"),
            '>' => quoted.push_str("#gt;"),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_foreign_rules_cannot_end_a_label() {
        let quoted = quoted("--comment \"a\\b\" <x>;#&\n");
        assert_eq!(quoted, r#""--comment #quot;a\b#quot; #lt;x#gt;;#35;#amp;\n""#);
    }
}
