//! Escapes text from elsewhere (options, paths, comments of foreign rules, errors of tools) for the log and
//! the terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// `text` in which every control character but the line feed is written as an escape, so that it can neither
/// move a terminal's cursor nor pretend to be another column.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_control(c))
}

/// `text` in one line, with escapes for control characters: a line feed is written as `\n`.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_control)
}

/// A path in one line.
#[must_use]
pub fn path_shown(path: &Path) -> String {
    one_line(&path.display().to_string()).into_owned()
}

/// The most characters of a verdict.
pub const WIDEST: usize = 100;
/// Ends a verdict that goes on below.
const MORE: &str = " ...";

/// A verdict as the first line of a report, up to a word, and what of it goes on below.
#[must_use]
pub fn first_line(whole: &str) -> (String, &str) {
    if whole.chars().count() <= WIDEST {
        return (whole.to_owned(), "");
    }
    let mut short = String::new();
    for word in whole.split_inclusive(' ') {
        if short.chars().count() + word.chars().count() > WIDEST - MORE.len() {
            break;
        }
        short.push_str(word);
    }
    let rest = whole.get(short.len()..).unwrap_or_default();
    ([short.trim_end(), MORE].concat(), rest)
}

/// `text` in lines of at most `width` characters, broken between words; what goes on is indented. Sequences
/// that colour text (`ESC [ ... m`) have no width.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> String {
    let mut wrapped = String::with_capacity(text.len() + 64);
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let indent = (indent + 4).min(width / 2);
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            let shown = visible(word.trim_end_matches([' ', '\n']));
            if column > indent && column + shown > width {
                wrapped.truncate(wrapped.trim_end_matches(' ').len());
                wrapped.push('\n');
                wrapped.extend(std::iter::repeat_n(' ', indent));
                column = indent;
                if shown == 0 {
                    continue;
                }
            }
            wrapped.push_str(word);
            column += visible(word.trim_end_matches('\n'));
        }
    }
    wrapped
}

/// The characters of a word without colours.
fn visible(word: &str) -> usize {
    let mut parts = word.split('\x1b');
    let first = parts.next().map_or(0, |part| part.chars().count());
    let others = parts.map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count()));
    first + others.sum::<usize>()
}

/// A number and what it counts: `1 port`, `2 ports`, `2 classes`.
#[must_use]
pub fn count(number: usize, what: &str) -> String {
    let ending = match number {
        1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {what}{ending}")
}

/// A list with commas in one line: of a long one its first entries, and the number of all.
#[must_use]
pub fn list_shown(text: &str) -> String {
    const MOST: usize = 10;
    let items = text.split(',').count();
    if items <= MOST {
        return one_line(text).into_owned();
    }
    let first: Vec<&str> = text.split(',').take(MOST).collect();
    one_line(&format!("{},... ({items} entries)", first.join(","))).into_owned()
}

/// A word for a shell, quoted where it has to be.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ",._/:+-%@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Words of `iptables-save` for a shell: those in which it would replace something are quoted. Texts in
/// double quotes stay as they are where a shell reads them alike.
#[must_use]
pub fn shell_words(words: &str) -> String {
    let is_special = |c: char| "$`\\\"';&|<>(){}*?[]~#! ".contains(c) || c.is_control();
    let mut safe = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(first) = rest.chars().next() {
        let quoted = rest.strip_prefix('"').and_then(|text| Some((text, end_of_quoted(text)?)));
        let (word, text, length) = if let Some((text, end)) = quoted {
            let text = text.get(..end).unwrap_or_default();
            let is_alike = !text.contains(['$', '`', '\\', '!']);
            (rest.get(..end + 2).filter(|_| is_alike), unescaped(text), end + 2)
        } else if first == ' ' {
            (Some(" "), String::new(), 1)
        } else {
            let length = rest.find(' ').unwrap_or(rest.len());
            let word = rest.get(..length).unwrap_or_default();
            (Some(word).filter(|word| *word == "!" || !word.contains(is_special)), word.to_owned(), length)
        };
        match word {
            Some(word) => safe.push_str(word),
            None => safe.push_str(&shell_word(&text)),
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    safe
}

/// The place of the quote that ends a text.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end.then_some(at)
    })
}

fn unescaped(text: &str) -> String {
    let mut characters = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = characters.next() {
        plain.extend(if c == '\\' { characters.next() } else { Some(c) });
    }
    plain
}

/// Control characters, and what separates lines or turns the writing direction.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            // Writing to a String cannot fail.
            let _ = write!(safe, "{}", c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_rules_are_safe_in_a_shell() {
        for (words, safe) in [
            ("! -s 10.0.0.0/8 -p tcp -m tcp --dport 80:90 -j ACCEPT", None),
            ("-m comment --comment \"two words\" -j ACCEPT", None),
            (
                "-m comment --comment \"$(touch x)\" -j ACCEPT",
                Some("-m comment --comment '$(touch x)' -j ACCEPT"),
            ),
            ("--comment \"a \\\" b' c\" -j X", Some("--comment 'a \" b'\\'' c' -j X")),
            ("--comment `id` -i e;th -j X", Some("--comment '`id`' -i 'e;th' -j X")),
            ("--comment \"not closed", Some("--comment '\"not' closed")),
        ] {
            assert_eq!(shell_words(words), safe.unwrap_or(words));
        }
    }

    #[test]
    fn long_lines_are_wrapped_between_words_and_colours_have_no_width() {
        assert_eq!(wrapped("short\n  a b\n", 10), "short\n  a b\n");
        assert_eq!(wrapped("one two three four\nnext\n", 10), "one two\n    three\n    four\nnext\n");
        assert_eq!(wrapped("\x1b[31mone two\x1b[0m x\n", 10), "\x1b[31mone two\x1b[0m x\n");
        assert_eq!(wrapped("averyverylongword\n", 10), "averyverylongword\n");
        let rows = wrapped("  app to a server   captured, 15001   every range\n", 24);
        assert!(rows.lines().all(|line| line.len() <= 24) && rows.ends_with("range\n"), "{rows}");
    }

    #[test]
    fn plural_follows_the_number() {
        let counted = |what| [0, 1, 2].map(|number| count(number, what));
        assert_eq!(counted("port"), ["0 ports", "1 port", "2 ports"]);
        assert_eq!(counted("class"), ["0 classes", "1 class", "2 classes"]);
        assert_eq!(counted("more kind"), ["0 more kinds", "1 more kind", "2 more kinds"]);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            printable("a\u{1b}[31mb\tc\rd\u{85}e\u{202e}f\nü"),
            "a\\u{1b}[31mb\\tc\\rd\\u{85}e\\u{202e}f\nü"
        );
        assert_eq!(one_line("a\nb"), "a\\nb");
        assert!(matches!(printable("plain ü\nline"), Cow::Borrowed(_)));
    }
}
