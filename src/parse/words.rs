//! The words of a line, with quotes resolved as iptables writes them.

/// Splits at blanks; a word in double quotes may hold blanks, and `\"` and `\\` inside it are escapes.
/// `None` if a quote is not closed.
pub(super) fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
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
            while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
}

/// The word behind `-j` or `-g`.
pub(super) fn target(text: &str) -> Option<String> {
    let words = split(text)?;
    let at = words.iter().position(|word| word == "-j" || word == "-g")?;
    words.into_iter().nth(at + 1)
}
