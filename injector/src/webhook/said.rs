//! Texts as the API server takes them: one line each, and not too long. What is left out is marked.

/// Of all warnings together, in characters: the API server cuts what goes beyond.
const ALL: usize = 4096;
/// Of one warning, where all are too long.
const ONE: usize = 256;
/// Of the message of a refusal.
const MESSAGE: usize = 2048;
/// Of a name in a log line or within a sentence; a workload with its kind is shorter.
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

/// A name, or what is given as one, in a log line or within a sentence.
#[must_use]
pub fn word(text: &str) -> String {
    line(text, WORD)
}

/// The message of a refusal; each of its lines becomes a sentence.
#[must_use]
pub fn message(text: &str) -> String {
    line(&text.replace('\n', "; "), MESSAGE)
}

/// Warnings: whole where there is room, else each cut and the last ones counted only.
#[must_use]
pub fn warnings<'a>(all: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = all.into_iter().map(|text| line(text, ALL)).collect();
    let length = |line: &String| line.chars().count();
    if lines.iter().map(length).sum::<usize>() <= ALL {
        return lines;
    }
    for long in &mut lines {
        *long = line(long, ONE);
    }
    let mut room = ALL - ONE;
    let fit = lines.iter().position(|line| match room.checked_sub(length(line)) {
        Some(left) => {
            room = left;
            false
        }
        None => true,
    });
    if let Some(fit) = fit {
        let more = lines.len() - fit;
        lines.truncate(fit);
        lines.push(format!("{more} more warnings: sidecar-injector check shows all"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ones_stay_and_have_one_line() {
        assert_eq!(warnings(["a\nb\u{7f}c\td", "ü\u{2028}"]), ["a b c d", "ü "]);
        assert_eq!(message("a: x\nb: y"), "a: x; b: y");
        let long = "ü".repeat(1000);
        assert_eq!(warnings([long.as_str()]), [long.as_str()]);
    }

    #[test]
    fn what_is_cut_shows_it() {
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
            assert!(total <= ALL, "{count}: {total}");
            let whole = all.iter().filter(|line| line.ends_with("ü...")).count();
            let counted = all.last().and_then(|line| line.split_once(" more")?.0.parse::<usize>().ok());
            assert_eq!(whole + counted.unwrap_or(0), count);
        }
    }
}
