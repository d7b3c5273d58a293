//! What would change, line by line.

use std::fmt::Write as _;

use serde_json::Value;

use crate::yaml;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// The difference between two objects, in the form of `diff -u`; empty if there is none.
pub(super) fn documents(name: &str, before: &Value, after: &Value) -> String {
    let (before, after) = (yaml::write(before), yaml::write(after));
    let lines = compare(&before.lines().collect::<Vec<_>>(), &after.lines().collect::<Vec<_>>());
    let hunks = hunks(&lines);
    if hunks.is_empty() {
        return String::new();
    }
    format!("--- {name}\n+++ {name} (after)\n{hunks}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Added(&'a str),
    Kept(&'a str),
    Removed(&'a str),
}

/// The shortest way from one list of lines to the other. What is equal at both ends is set aside first.
fn compare<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<Line<'a>> {
    let head = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let (start, old) = before.split_at(head);
    let new = after.get(head..).unwrap_or_default();
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old, end) = old.split_at(old.len() - tail);
    let new = new.get(..new.len() - tail).unwrap_or_default();
    let mut lines: Vec<Line<'a>> = start.iter().map(|line| Line::Kept(line)).collect();
    lines.extend(middle(old, new));
    lines.extend(end.iter().map(|line| Line::Kept(line)));
    lines
}

/// By the table of longest common subsequences; where that would be large, everything counts as changed.
fn middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    const LARGEST: usize = 16_000_000;
    let width = new.len() + 1;
    if (old.len() + 1).saturating_mul(width) > LARGEST {
        return old
            .iter()
            .map(|line| Line::Removed(line))
            .chain(new.iter().map(|line| Line::Added(line)))
            .collect();
    }
    let mut table = vec![0u32; (old.len() + 1) * width];
    let at = |table: &[u32], row: usize, column: usize| {
        table.get(row * width + column).copied().unwrap_or_default()
    };
    for row in (0..old.len()).rev() {
        for column in (0..new.len()).rev() {
            let best = if old.get(row) == new.get(column) {
                at(&table, row + 1, column + 1) + 1
            } else {
                at(&table, row + 1, column).max(at(&table, row, column + 1))
            };
            if let Some(cell) = table.get_mut(row * width + column) {
                *cell = best;
            }
        }
    }
    let (mut row, mut column, mut lines) = (0, 0, Vec::new());
    loop {
        match (old.get(row), new.get(column)) {
            (Some(one), Some(other)) if one == other => {
                lines.push(Line::Kept(one));
                row += 1;
                column += 1;
            }
            (Some(one), other)
                if other.is_none() || at(&table, row + 1, column) >= at(&table, row, column + 1) =>
            {
                lines.push(Line::Removed(one));
                row += 1;
            }
            (_, Some(other)) => {
                lines.push(Line::Added(other));
                column += 1;
            }
            _ => return lines,
        }
    }
}

fn hunks(lines: &[Line<'_>]) -> String {
    let changed = |at: usize| !matches!(lines.get(at), None | Some(Line::Kept(_)));
    let near = |at: usize| (at.saturating_sub(CONTEXT)..=at + CONTEXT).any(changed);
    let (mut text, mut hunk) = (String::new(), Hunk::default());
    let (mut old, mut new) = (0, 0);
    for (at, line) in lines.iter().enumerate() {
        if near(at) {
            hunk.push(line);
        } else {
            hunk.flush(&mut text, old, new);
        }
        old += usize::from(!matches!(line, Line::Added(_)));
        new += usize::from(!matches!(line, Line::Removed(_)));
    }
    hunk.flush(&mut text, old, new);
    text
}

/// Lines that are shown together, and how many of them either side has.
#[derive(Default)]
struct Hunk {
    text: String,
    old: usize,
    new: usize,
}

impl Hunk {
    fn push(&mut self, line: &Line<'_>) {
        let (mark, line, old, new) = match line {
            Line::Added(line) => ('+', line, 0, 1),
            Line::Kept(line) => (' ', line, 1, 1),
            Line::Removed(line) => ('-', line, 1, 0),
        };
        let _ = writeln!(self.text, "{mark}{line}");
        self.old += old;
        self.new += new;
    }

    /// Writes the hunk that ends after so many lines, if there is one. A side without a line names the line before.
    fn flush(&mut self, text: &mut String, old: usize, new: usize) {
        if self.text.is_empty() {
            return;
        }
        let start = |end: usize, count: usize| end - count + usize::from(count > 0);
        let (before, after) = (start(old, self.old), start(new, self.new));
        let _ = writeln!(text, "@@ -{before},{} +{after},{} @@", self.old, self.new);
        text.push_str(&self.text);
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_changed_with_its_surroundings() {
        let before = json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9});
        let mut after = before.clone();
        after["h"] = json!(0);
        after["j"] = json!(1);
        assert_eq!(
            documents("x", &before, &after),
            "--- x\n+++ x (after)\n@@ -5,5 +5,6 @@\n e: 5\n f: 6\n g: 7\n-h: 8\n+h: 0\n i: 9\n+j: 1\n"
        );
        assert_eq!(documents("x", &before, &before), "");
    }

    #[test]
    fn every_hunk_counts_its_lines() {
        let numbers: Vec<String> = (0..30).map(|line| line.to_string()).collect();
        let before: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let mut after = before.clone();
        after.remove(20);
        after.insert(5, "new");
        let text = hunks(&compare(&before, &after));
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(heads, ["@@ -3,6 +3,7 @@", "@@ -18,7 +19,6 @@"], "{text}");
        assert!(hunks(&[Line::Added("x")]).starts_with("@@ -0,0 +1,1 @@\n"));
    }
}
