//! Truncates strings to one line that the API server and the log accept, and marks the omission.

/// The most characters of all warnings together: the API server cuts the rest.
const ALL_WARNINGS: usize = 4096;
/// The most characters of one warning, where all together are too long.
const ONE_WARNING: usize = 256;
/// The most characters of the message of a denial.
const MESSAGE: usize = 2048;
/// The most characters of a name in a log line or within a sentence; a workload with its kind has fewer.
const WORD: usize = 320;
const MARK: &str = "...";

/// One line of at most so many characters.
fn line(text: &str, longest: usize) -> String {
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .take(longest + 1)
        .collect();
    if let Some((cut, _)) = line.char_indices().nth(longest) {
        let keep = line.char_indices().nth(longest - MARK.len()).map_or(cut, |(at, _)| at);
        line.truncate(keep);
        line.push_str(MARK);
    }
    line
}

/// A name in a log line or within a sentence.
pub(super) fn word(text: &str) -> String {
    line(text, WORD)
}

/// The message of a denial; each of its lines becomes a clause.
pub(super) fn message(text: &str) -> String {
    line(&text.replace('\n', "; "), MESSAGE)
}

/// Warnings: whole where all fit, else each cut and the last ones only counted.
pub(super) fn warnings<'a>(all: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = all.into_iter().map(|text| line(text, ALL_WARNINGS)).collect();
    let length = |line: &String| line.chars().count();
    if lines.iter().map(length).sum::<usize>() <= ALL_WARNINGS {
        return lines;
    }
    for long in &mut lines {
        *long = line(long, ONE_WARNING);
    }
    let mut free = ALL_WARNINGS - ONE_WARNING;
    let cut = lines.iter().position(|line| match free.checked_sub(length(line)) {
        Some(left) => {
            free = left;
            false
        }
        None => true,
    });
    if let Some(cut) = cut {
        let more = lines.len() - cut;
        lines.truncate(cut);
        lines.push(format!("{more} more warnings: sidecar-injector check shows all"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_strings_stay_whole_on_one_line() {
        assert_eq!(warnings(["a\nb\u{7f}c\td", "ü\u{2028}"]), ["a b c d", "ü "]);
        assert_eq!(message("a: x\nb: y"), "a: x; b: y");
        let long = "ü".repeat(1000);
        assert_eq!(warnings([long.as_str()]), [long.as_str()]);
    }

    #[test]
    fn cut_strings_are_marked() {
        let long = "ü".repeat(5000);
        let cut = message(&long);
        assert_eq!(cut.chars().count(), MESSAGE);
        assert!(cut.ends_with("üü..."));
        assert_eq!(word(&long).chars().count(), WORD);
        let exact = "x".repeat(MESSAGE);
        assert_eq!(message(&exact), exact);
        for count in [1, 2, 15, 16, 17, 500] {
            let all = warnings(std::iter::repeat_n(long.as_str(), count));
            let total: usize = all.iter().map(|line| line.chars().count()).sum();
            assert!(total <= ALL_WARNINGS, "{count}: {total}");
            let whole = all.iter().filter(|line| line.ends_with("ü...")).count();
            let counted = all.last().and_then(|line| line.split_once(" more")?.0.parse::<usize>().ok());
            assert_eq!(whole + counted.unwrap_or(0), count);
        }
    }
}
