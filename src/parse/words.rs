//! The words of a line, with quotes resolved as iptables writes them, and names as iptables has them.

/// Splits at blanks; a word in double quotes may hold blanks and line feeds, and a backslash inside it makes
/// the next character literal: iptables-save escapes `"`, `\` and `'`. `None` if a quote is not closed.
pub(super) fn split(text: &str) -> Option<Vec<String>> {
    if !text.contains('"') {
        return Some(text.split_ascii_whitespace().map(str::to_owned).collect());
    }
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        let Some(first) = chars.next() else {
            return Some(words);
        };
        let mut word = String::new();
        if first == '"' {
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => word.push(chars.next()?),
                    c => word.push(c),
                }
            }
        } else {
            word.push(first);
            while let Some(c) = chars.next_if(|c| !c.is_ascii_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
}

/// The chain that a rule jumps or goes to, if that is what it ends with. A user chain as target takes no
/// options, so its name is the last word; an earlier `-j` may be the value of an option, such as a comment.
pub(super) fn target(words: &[String]) -> Option<&str> {
    match words {
        [.., option, name] if option == "-j" || option == "-g" => Some(name),
        _ => None,
    }
}

/// The words from the target on: `-j NAME ...` or `-g NAME ...`. The value of an option may look like one: a
/// comment.
pub(super) fn target_of(words: &[String]) -> &[String] {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "-j" | "-g" => return words.get(at..).unwrap_or_default(),
            "--comment" => at += 2,
            _ => at += 1,
        }
    }
    &[]
}

/// The words of a rule but for its comments, which tools write in several ways.
pub(super) fn without_comments(text: &str) -> String {
    let Some(words) = split(text) else { return text.to_owned() };
    let mut rest = words.as_slice();
    let mut left = Vec::new();
    while let [first, later @ ..] = rest {
        rest = match rest {
            [option, name, ..] if option == "-m" && name == "comment" => rest.get(2..).unwrap_or_default(),
            [option, _, ..] if option == "--comment" => rest.get(2..).unwrap_or_default(),
            _ => {
                left.push(first.as_str());
                later
            }
        };
    }
    left.join(" ")
}

/// The records of a saved rule set: lines, of which those of rules go on as long as a quote is open. A quote
/// that is never closed ends with its line, so that one odd rule does not hide all others.
pub(super) fn records(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let is_rule = ["-A ", "-I ", "["].iter().any(|begin| rest.starts_with(begin));
        let end = rest.find('\n').unwrap_or(rest.len());
        let has_quote = is_rule && rest.get(..end).is_some_and(|line| line.contains('"'));
        let end = if has_quote { end_outside_quotes(rest).unwrap_or(end) } else { end };
        let (record, behind) = rest.split_at(end);
        rest = behind.strip_prefix('\n').unwrap_or(behind);
        Some(record)
    })
}

/// Where the first line feed outside of quotes is. A quote opens only at the beginning of a word.
fn end_outside_quotes(text: &str) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    let mut word_begins = true;
    for (at, byte) in text.bytes().enumerate() {
        match (quoted, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => quoted = false,
            (false, b'"') if word_begins => quoted = true,
            (false, b'\n') => return Some(at),
            (true | false, _) => {}
        }
        word_begins = byte.is_ascii_whitespace();
    }
    (!quoted).then_some(text.len())
}

/// The name in iptables: that of `istio-output` is `ISTIO_OUTPUT`.
#[must_use]
pub(super) fn chain_name(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<&str> {
        records(text).collect()
    }

    #[test]
    fn quoted_line_feed_does_not_end_a_rule() {
        let rule = "-A OUTPUT -m comment --comment \"a\n-A OUTPUT -j ISTIO_OUTPUT\\\"\n\" -j ACCEPT";
        assert_eq!(all(&format!("*nat\n{rule}\nCOMMIT\n")), ["*nat", rule, "COMMIT"]);
    }

    #[test]
    fn unclosed_quote_ends_with_its_line() {
        assert_eq!(all("*nat\n-A OUTPUT --odd \"x\nCOMMIT"), ["*nat", "-A OUTPUT --odd \"x", "COMMIT"]);
    }

    #[test]
    fn comments_are_left_out() {
        for comment in ["a", "\"a \\\" b\"", "--comment", "-j"] {
            let text = format!("-p tcp -m comment --comment {comment} -j DROP");
            assert_eq!(without_comments(&text), "-p tcp -j DROP", "{comment}");
        }
        assert_eq!(without_comments("-j DROP -m comment --comment x"), "-j DROP");
        assert_eq!(without_comments("-j DROP \"x"), "-j DROP \"x");
    }

    #[test]
    fn comment_that_is_an_option_is_not_the_target() {
        let words = |text| split(text).unwrap();
        assert_eq!(target(&words("-m comment --comment -j -j ISTIO_OUTPUT")), Some("ISTIO_OUTPUT"));
        assert_eq!(target(&words("-m comment --comment \"-j ISTIO_OUTPUT\"")), None);
        assert_eq!(target(&words("-j LOG --log-prefix -j")), None);
    }
}
