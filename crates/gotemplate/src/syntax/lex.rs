//! Template text → tokens.

use crate::error::{Error, place};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Open,
    Close,
    Ident,
    Keyword,
    Field,
    Variable,
    Dot,
    Nil,
    Bool,
    Number,
    Char,
    Str,
    Raw,
    Pipe,
    Comma,
    Declare,
    Assign,
    LeftParen,
    RightParen,
    Space,
    Other,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Kind,
    pub(crate) at: usize,
    pub(crate) text: &'s str,
}

/// The marks that enclose an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delimiters {
    /// `{{`
    pub left: &'static str,
    /// `}}`
    pub right: &'static str,
}

impl Default for Delimiters {
    fn default() -> Self {
        Self { left: "{{", right: "}}" }
    }
}

impl Delimiters {
    /// `[[` and `]]`, as the injector's config had them before 1.1.
    pub const SQUARE: Self = Self { left: "[[", right: "]]" };
}

const KEYWORDS: [&str; 10] =
    ["block", "break", "continue", "define", "else", "end", "if", "range", "template", "with"];

struct Lexer<'s> {
    name: &'s str,
    text: &'s str,
    at: usize,
    delims: Delimiters,
    parens: usize,
    tokens: Vec<Token<'s>>,
}

pub(crate) fn lex<'s>(name: &'s str, text: &'s str, delims: Delimiters) -> Result<Vec<Token<'s>>, Error> {
    let mut lexer = Lexer { name, text, at: 0, delims, parens: 0, tokens: Vec::new() };
    while lexer.outside()? {
        lexer.inside()?;
    }
    lexer.tokens.push(Token { kind: Kind::End, at: text.len(), text: "" });
    Ok(lexer.tokens)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn push(&mut self, kind: Kind, start: usize) {
        let text = self.text.get(start..self.at).unwrap_or_default();
        self.tokens.push(Token { kind, at: start, text });
    }

    fn fail<T>(&self, at: usize, message: impl Into<String>) -> Result<T, Error> {
        let (line, column) = place(self.text, at);
        let message = message.into();
        Err(Error { template: self.name.into(), line, column, expression: String::new(), message })
    }

    /// Text up to the next action; `false` at the end of the template.
    fn outside(&mut self) -> Result<bool, Error> {
        loop {
            let start = self.at;
            let Some(length) = self.rest().find(self.delims.left) else {
                self.at = self.text.len();
                self.text_token(start, self.at);
                return Ok(false);
            };
            let open = start + length;
            self.at = open + self.delims.left.len();
            let trims = self.trims_left();
            let text = self.text.get(start..open).unwrap_or_default();
            let kept = if trims { text.trim_end_matches(is_space).len() } else { text.len() };
            self.text_token(start, start + kept);
            if trims {
                self.at += 1;
            }
            let body = if trims { self.rest().trim_start_matches(is_space) } else { self.rest() };
            if !body.starts_with("/*") {
                self.tokens.push(Token { kind: Kind::Open, at: open, text: self.delims.left });
                self.parens = 0;
                return Ok(true);
            }
            self.at = self.text.len() - body.len();
            self.comment(open)?;
        }
    }

    /// `- ` after the left delimiter.
    fn trims_left(&self) -> bool {
        let mut chars = self.rest().chars();
        chars.next() == Some('-') && chars.next().is_some_and(is_space)
    }

    /// Whether the right delimiter comes next, and whether it trims what follows it.
    fn at_close(&self) -> Option<bool> {
        let mut chars = self.rest().chars();
        if chars.next().is_some_and(is_space)
            && chars.next() == Some('-')
            && chars.as_str().starts_with(self.delims.right)
        {
            return Some(true);
        }
        self.rest().starts_with(self.delims.right).then_some(false)
    }

    fn close(&mut self, trims: bool) {
        self.at += self.delims.right.len() + if trims { 2 } else { 0 };
        if trims {
            self.at = self.text.len() - self.rest().trim_start_matches(is_space).len();
        }
    }

    fn text_token(&mut self, start: usize, end: usize) {
        if end > start {
            let text = self.text.get(start..end).unwrap_or_default();
            self.tokens.push(Token { kind: Kind::Text, at: start, text });
        }
    }

    fn comment(&mut self, open: usize) -> Result<(), Error> {
        let Some(length) = self.rest().find("*/") else {
            return self.fail(open, "unclosed comment");
        };
        self.at += length + 2;
        let Some(trims) = self.at_close() else {
            return self.fail(self.at, "comment ends before closing delimiter");
        };
        self.close(trims);
        Ok(())
    }

    /// Tokens of one action, its right delimiter included.
    fn inside(&mut self) -> Result<(), Error> {
        loop {
            let start = self.at;
            if let Some(trims) = self.at_close() {
                if self.parens > 0 {
                    return self.fail(start, "unclosed left paren");
                }
                self.close(trims);
                self.tokens.push(Token { kind: Kind::Close, at: start, text: self.delims.right });
                return Ok(());
            }
            let Some(c) = self.peek() else {
                return self.fail(start, "unclosed action");
            };
            self.at += c.len_utf8();
            match c {
                _ if is_space(c) => self.space(start),
                '"' => self.literal(start, '"', Kind::Str, "quoted string")?,
                '`' => self.raw(start)?,
                '\'' => self.literal(start, '\'', Kind::Char, "character constant")?,
                '$' => self.name(start, Kind::Variable, Kind::Variable)?,
                '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                    self.name(start, Kind::Dot, Kind::Field)?;
                }
                '.' | '+' | '-' | '0'..='9' => self.number(start)?,
                _ if is_word(c) => self.word(start)?,
                _ => self.sign(start, c)?,
            }
        }
    }

    fn space(&mut self, start: usize) {
        self.at = start;
        while self.at_close().is_none() && self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        if self.at > start {
            self.push(Kind::Space, start);
        }
    }

    fn sign(&mut self, start: usize, c: char) -> Result<(), Error> {
        let kind = match c {
            '=' => Kind::Assign,
            '|' => Kind::Pipe,
            ',' => Kind::Comma,
            ':' if self.peek() == Some('=') => {
                self.at += 1;
                Kind::Declare
            }
            ':' => return self.fail(start, "expected :="),
            '(' => {
                self.parens += 1;
                Kind::LeftParen
            }
            ')' if self.parens == 0 => return self.fail(start, "unexpected right paren"),
            ')' => {
                self.parens -= 1;
                Kind::RightParen
            }
            _ if c.is_ascii_graphic() => Kind::Other,
            _ => return self.fail(start, format!("unrecognized character in action: {c:?}")),
        };
        self.push(kind, start);
        Ok(())
    }

    /// A literal up to its closing mark, which is called `what`.
    fn literal(&mut self, start: usize, mark: char, kind: Kind, what: &str) -> Result<(), Error> {
        if !self.until(mark) {
            return self.fail(start, format!("unterminated {what}"));
        }
        self.push(kind, start);
        Ok(())
    }

    /// Goes beyond the closing mark on the same line; a backslash protects the character after it.
    fn until(&mut self, mark: char) -> bool {
        let mut protected = false;
        let rest = self.rest();
        for (i, c) in rest.char_indices() {
            match c {
                '\n' => return false,
                _ if protected => protected = false,
                '\\' => protected = true,
                _ if c == mark => {
                    self.at += i + 1;
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    fn raw(&mut self, start: usize) -> Result<(), Error> {
        let Some(length) = self.rest().find('`') else {
            return self.fail(start, "unterminated raw quoted string");
        };
        self.at += length + 1;
        self.push(Kind::Raw, start);
        Ok(())
    }

    fn skip_word(&mut self) {
        while let Some(c) = self.peek().filter(|c| is_word(*c)) {
            self.at += c.len_utf8();
        }
    }

    fn name(&mut self, start: usize, bare: Kind, named: Kind) -> Result<(), Error> {
        self.skip_word();
        self.terminated()?;
        self.push(if self.at == start + 1 { bare } else { named }, start);
        Ok(())
    }

    fn word(&mut self, start: usize) -> Result<(), Error> {
        self.skip_word();
        self.terminated()?;
        let kind = match self.text.get(start..self.at).unwrap_or_default() {
            "true" | "false" => Kind::Bool,
            "nil" => Kind::Nil,
            word if KEYWORDS.contains(&word) => Kind::Keyword,
            _ => Kind::Ident,
        };
        self.push(kind, start);
        Ok(())
    }

    /// A name ends at something that cannot be part of one.
    fn terminated(&self) -> Result<(), Error> {
        match self.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | '.' | ',' | '|' | ':' | '(' | ')') => Ok(()),
            Some(_) if self.rest().starts_with(self.delims.right) => Ok(()),
            Some(c) => self.fail(self.at, format!("bad character {c:?}")),
        }
    }

    fn number(&mut self, start: usize) -> Result<(), Error> {
        self.at = start;
        let rest = self.rest();
        let mut before = ' ';
        let hex = rest.trim_start_matches(['+', '-']).get(..2).is_some_and(|p| p.eq_ignore_ascii_case("0x"));
        let length = rest
            .char_indices()
            .find(|(i, c)| {
                let exponent = if hex { "pP" } else { "eE" };
                let sign = matches!(c, '+' | '-') && (*i == 0 || exponent.contains(before));
                before = *c;
                !(sign || *c == '.' || is_word(*c))
            })
            .map_or(rest.len(), |(i, _)| i);
        self.at += length;
        self.push(Kind::Number, start);
        Ok(())
    }
}
