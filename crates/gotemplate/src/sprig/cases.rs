//! `snakecase`, `kebabcase`, `camelcase`.

/// What a run of characters is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    End,
    Number,
    Upper,
    Letters,
    Connector,
    Punctuation,
    Other,
}

fn is_connector(c: char) -> bool {
    matches!(c, '-' | '_') || c.is_whitespace()
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() && !c.is_uppercase()
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~')
}

fn is_other(c: char) -> bool {
    !(is_connector(c) || is_punctuation(c) || c.is_alphanumeric())
}

/// The first run of `text` and what follows it. `HTTPStatus` is `HTTP` and `Status`.
fn run(text: &str) -> (Run, &str, &str) {
    let Some(first) = text.chars().next() else {
        return (Run::End, "", "");
    };
    let upto = |from: usize, accept: fn(char) -> bool| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.find(|c| !accept(c)).unwrap_or(rest.len())
    };
    let (sort, end) = match first {
        _ if is_connector(first) => (Run::Connector, upto(0, is_connector)),
        _ if is_punctuation(first) => (Run::Punctuation, upto(0, is_punctuation)),
        _ if first.is_uppercase() => {
            let capitals = upto(0, char::is_uppercase);
            let follows = text.get(capitals..).unwrap_or_default().chars().next().is_some_and(is_letter);
            let last = text.get(..capitals).and_then(|c| c.chars().next_back()).map_or(0, char::len_utf8);
            match (follows, capitals > first.len_utf8()) {
                (true, true) => (Run::Upper, capitals - last),
                (true, false) => (Run::Upper, upto(capitals, is_letter)),
                (false, _) => (Run::Upper, capitals),
            }
        }
        _ if is_letter(first) => (Run::Letters, upto(0, is_letter)),
        _ if first.is_numeric() => (Run::Number, upto(0, char::is_numeric)),
        _ => (Run::Other, upto(0, is_other)),
    };
    let (word, rest) = text.split_at(end);
    (sort, word, rest)
}

/// Words in lower case, joined by `connector`.
pub(crate) fn lowered(text: &str, connector: char) -> String {
    let mut out = String::new();
    let put = |out: &mut String, sort: Run, word: &str| match sort {
        Run::Connector => out.extend(word.chars().map(|_| connector)),
        _ => out.push_str(&word.to_lowercase()),
    };
    let joins = |sort: Run| !matches!(sort, Run::End | Run::Connector | Run::Punctuation);
    let (mut sort, mut word, mut rest) = run(text);
    while !rest.is_empty() {
        put(&mut out, sort, word);
        let before = sort;
        (sort, word, rest) = run(rest);
        match before {
            Run::Connector | Run::Punctuation => continue,
            Run::Number => {}
            _ if sort != Run::Number => {
                if joins(sort) {
                    out.push(connector);
                }
                continue;
            }
            _ if rest.is_empty() => continue,
            _ => {
                // Digits belong to the word before them, unless small letters follow: `Bld4Floor`, `HTTP2xx`.
                let digits = word;
                (sort, word, rest) = run(rest);
                if sort == Run::Letters {
                    out.push(connector);
                }
                out.push_str(digits);
                if sort != Run::Letters {
                    if joins(sort) {
                        out.push(connector);
                    }
                    continue;
                }
            }
        }
        while matches!(sort, Run::Letters | Run::Number) {
            put(&mut out, sort, word);
            (sort, word, rest) = run(rest);
        }
        if joins(sort) {
            out.push(connector);
        }
    }
    put(&mut out, sort, word);
    out
}

/// `http_server` becomes `HttpServer`; connectors in front, and all but one of several, stay.
pub(crate) fn camel(text: &str) -> String {
    let body = text.trim_start_matches(is_connector);
    let mut out = text.get(..text.len() - body.len()).unwrap_or_default().to_owned();
    let mut chars = body.chars();
    let Some(first) = chars.next() else {
        // Connectors alone: the last one comes twice.
        out.extend(text.chars().next_back());
        return out;
    };
    let mut pending: Vec<char> = first.to_uppercase().collect();
    for c in chars {
        let after_connector = pending.first().is_some_and(|p| is_connector(*p));
        if after_connector && !is_connector(c) {
            pending = c.to_uppercase().collect();
        } else {
            out.extend(pending.iter());
            pending = if after_connector { vec![c] } else { c.to_lowercase().collect() };
        }
    }
    out.extend(pending);
    out
}
