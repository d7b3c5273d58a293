//! Colours for text output, chosen by how a line begins.

/// Expected results.
pub const GREEN: &str = "\x1b[32m";
/// Errors.
pub const RED: &str = "\x1b[31m";
/// Warnings.
pub const YELLOW: &str = "\x1b[33m";
/// Of titles.
pub const BOLD: &str = "\x1b[1m";
/// Ends them.
pub const RESET: &str = "\x1b[0m";

/// Verdicts, as the first words of a report.
const VERDICTS: [(&str, &str); 12] = [
    ("captured", GREEN),
    ("equal", GREEN),
    ("not captured", YELLOW),
    ("as its connection", YELLOW),
    ("not proved", YELLOW),
    ("different", RED),
    ("dropped", RED),
    ("lost", RED),
    ("no route", RED),
    ("the live rules of this network namespace: no problem found", GREEN),
    ("the live rules", YELLOW),
    ("no capture rule is live", RED),
];

/// Beginnings of other lines.
const LINES: [(&str, &str); 13] = [
    ("> ", GREEN),
    ("+ ", GREEN),
    ("- ", RED),
    ("? ", YELLOW),
    ("! ", YELLOW),
    ("note", YELLOW),
    ("also different", RED),
    ("not proved", YELLOW),
    ("  note ", YELLOW),
    ("  unless ", YELLOW),
    ("    fix: ", GREEN),
    ("  fix ", GREEN),
    ("  problem ", RED),
];

/// Outcomes in the table of all traffic, with the blanks around them.
const OUTCOMES: [(&str, &str); 5] = [
    ("  captured", GREEN),
    ("  not captured", YELLOW),
    ("  dropped", RED),
    ("  lost", RED),
    ("  no route", RED),
];

/// What follows a verdict that is not the whole report.
const BUT: [&str; 2] = [", but ", "; unless "];

/// Whether the first line counts problems, or another line is one of these.
fn is_problem(number: usize, line: &str) -> bool {
    match line.trim_start().split_once(' ') {
        Some((count, rest)) if number == 0 => count.parse::<usize>().is_ok() && rest.starts_with("problem"),
        Some((count, _)) => count.strip_suffix('.').is_some_and(|count| count.parse::<usize>().is_ok()),
        None => false,
    }
}

/// A report with colours.
#[must_use]
pub fn paint(report: &str) -> String {
    let mut painted = String::with_capacity(report.len() + 512);
    for (number, line) in report.split_inclusive('\n').enumerate() {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let styles: &[_] = if number == 0 { &VERDICTS } else { &LINES };
        let whole = styles.iter().find(|(start, _)| line.starts_with(start)).map(|(_, style)| *style);
        let is_restricted = number == 0 && BUT.iter().any(|words| line.contains(words));
        let whole = if whole == Some(GREEN) && is_restricted { Some(YELLOW) } else { whole };
        // Titles of chains and of sections.
        let title = (number > 0 && line.starts_with(|c: char| c.is_ascii_alphabetic())).then_some(BOLD);
        let problem = is_problem(number, line).then_some(RED);
        match whole.or(problem).or(title) {
            Some(style) => painted.extend([style, line, RESET]),
            None => painted.push_str(line),
        }
        painted.push_str(end);
    }
    painted
}

/// A row of the table of all traffic, with its outcome in colour; `None` if the line is none.
#[must_use]
pub fn painted_row(line: &str) -> Option<String> {
    let found = OUTCOMES.iter().filter_map(|(word, style)| Some((line.find(word)?, *word, *style)));
    let (at, word, style) = found.min_by_key(|(at, ..)| *at).filter(|(at, ..)| *at > 0)?;
    let (before, rest) = line.split_at_checked(at + word.len())?;
    let (before, word) = before.split_at_checked(at)?;
    Some([before, style, word, RESET, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_colour_of_their_meaning() {
        let report = "not captured: excluded (-x)\n  goes to  10.0.0.1:80\n  note     other rules\n\nnat OUTPUT\n> -j RETURN  matches\n";
        let expected = "\x1b[33mnot captured: excluded (-x)\x1b[0m\n  goes to  10.0.0.1:80\n\x1b[33m  note     other rules\x1b[0m\n\n\
                        \x1b[1mnat OUTPUT\x1b[0m\n\x1b[32m> -j RETURN  matches\x1b[0m\n";
        assert_eq!(paint(report), expected);
    }

    #[test]
    fn first_line_of_the_table_has_a_colour_for_problems() {
        let port = "captured: goes to the proxy's outbound port 15001";
        assert!(paint(&[port, "\n"].concat()).starts_with(GREEN));
        assert!(paint(&[port, ", but nothing listens there\n"].concat()).starts_with(YELLOW));
        assert!(paint("no route: no policy rule leads to a route to 10.0.0.1\n").starts_with(RED));
        let first = "the live rules of this network namespace: ";
        assert!(paint(&[first, "no problem found\n"].concat()).starts_with(GREEN));
        assert!(paint(&[first, "no capture rule is live\n"].concat()).starts_with(YELLOW));
    }

    #[test]
    fn outcome_in_the_table_is_coloured_alone() {
        let row = "  app to a server   captured, 15001   everything else";
        assert_eq!(
            painted_row(row).unwrap(),
            "  app to a server \x1b[32m  captured\x1b[0m, 15001   everything else"
        );
    }

    #[test]
    fn rows_of_live_traffic_are_coloured_if_they_are_unexpected() {
        let rows = "1 problem: traffic is lost\n\n 1. a: b\n    fix: c\n  app   captured\n! app   dropped\n";
        let painted = paint(rows);
        assert!(painted.starts_with("\x1b[31m1 problem"), "{painted}");
        assert!(
            painted.contains(
                "\x1b[31m 1. a: b\x1b[0m\n\x1b[32m    fix: c\x1b[0m\n  app   captured\n\x1b[33m! app"
            ),
            "{painted}"
        );
    }

    #[test]
    fn without_colours_the_text_is_the_same() {
        let report = "different from what these options make: 1 chain or setting\n\nnat A (IPv4)\n-   1  -j X\n+   2  -j Y\n\nüber\n\n";
        let plain =
            [GREEN, RED, YELLOW, BOLD, RESET].iter().fold(paint(report), |text, code| text.replace(code, ""));
        assert_eq!(plain, report);
        assert_eq!(paint(""), "");
    }
}
