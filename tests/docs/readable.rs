//! Pages are looked through, not read: short paragraphs, short cells of tables.

use std::fs;
use std::path::{Path, PathBuf};

use super::files;

/// The findings of all pages in `docs/`, each with its page.
fn in_pages(find: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let pages = files(Path::new("docs")).into_iter().filter(|page| page.extension() == Some("md".as_ref()));
    let found = |page: PathBuf| {
        let text = fs::read_to_string(&page).unwrap();
        find(&text).into_iter().map(|line| format!("{}: {line}", page.display())).collect::<Vec<_>>()
    };
    pages.flat_map(found).collect()
}

/// How much of a line is on the screen: the target of a link is not.
fn shown(line: &str) -> usize {
    line.split("](")
        .enumerate()
        .map(|(at, part)| part.len() - if at > 0 { part.find(')').unwrap_or(0) } else { 0 })
        .sum()
}

/// A paragraph or an item of a list has one idea.
#[test]
fn paragraphs_have_at_most_four_lines() {
    assert_eq!(in_pages(long_paragraphs), [""; 0]);
}

#[test]
fn long_paragraphs_are_found() {
    let (four, five) = ("a\n".repeat(4), "b\n".repeat(5));
    assert_eq!(long_paragraphs(&format!("# h\n{four}\n{five}")), ["b"]);
    assert_eq!(long_paragraphs(&format!("{four}- {four}```\n{five}```\n|{five}")), [""; 0]);
    let link = "c".repeat(700);
    assert_eq!(long_paragraphs(&format!("[c]({link})\n\n{link}")), [link]);
}

/// The first line of each paragraph or item that has more than four lines, in the source or on a wide screen.
fn long_paragraphs(text: &str) -> Vec<String> {
    const MOST: (usize, usize) = (4, 640);
    let starts_item = |line: &str| {
        let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
        line.starts_with("- ")
            || line.starts_with("* ")
            || number.len() < line.len() && number.starts_with(". ")
    };
    let mut paragraphs: Vec<Vec<&str>> = vec![Vec::new()];
    let mut in_code = false;
    for line in text.lines().map(str::trim) {
        let fence = line.starts_with("```");
        let other = in_code || fence || line.is_empty() || line.starts_with(['#', '|', '<', '!']);
        in_code ^= fence;
        if other || starts_item(line) {
            paragraphs.push(Vec::new());
        }
        if !other && let Some(paragraph) = paragraphs.last_mut() {
            paragraph.push(line);
        }
    }
    let long = |lines: &&Vec<&str>| {
        lines.len() > MOST.0 || lines.iter().map(|line| shown(line)).sum::<usize>() > MOST.1
    };
    paragraphs
        .iter()
        .filter(long)
        .map(|lines| lines.first().copied().unwrap_or_default().to_owned())
        .collect()
}

/// What a cell has no room for is a section, which the cell links to.
#[test]
fn cells_of_tables_are_short() {
    assert_eq!(in_pages(long_cells), [""; 0]);
}

#[test]
fn long_cells_are_found() {
    let (long, short) = ("a".repeat(MOST_OF_A_CELL + 1), "b ".repeat(MOST_OF_A_CELL / 2));
    let start: String = long.chars().take(60).collect();
    assert_eq!(long_cells(&format!("| x | {long} |\n|---|---|\n| {short} | {short} |\n{long}\n")), [start]);
    assert_eq!(long_cells(&format!("| [x]({long}) |")), [""; 0]);
}

/// About six lines of a column that has half of a screen.
const MOST_OF_A_CELL: usize = 500;

/// The first words of each cell of a table that is too long; `\|` is no border.
fn long_cells(text: &str) -> Vec<String> {
    let rows = text.lines().map(str::trim).filter(|line| line.starts_with('|'));
    let cells =
        rows.flat_map(|row| row.replace("\\|", "/").split('|').map(str::to_owned).collect::<Vec<_>>());
    let long = cells.filter(|cell| shown(cell.trim()) > MOST_OF_A_CELL);
    long.map(|cell| cell.trim().chars().take(60).collect()).collect()
}
