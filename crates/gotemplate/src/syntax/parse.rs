//! Tokens → syntax tree.

use crate::error::{Error, place};
use crate::functions::Functions;
use crate::syntax::ast::{Block, Branch, Node};
use crate::syntax::lex::{Delimiters, Kind, Token, lex};
use crate::syntax::literal;
use std::collections::HashMap;
use std::sync::Arc;

/// How deep control structures and parentheses may nest.
const MAX_DEPTH: usize = 60;

/// The templates of one text: its own and those that it defines.
pub(crate) type Trees = HashMap<String, Block>;

pub(crate) fn parse(
    name: &str,
    text: &str,
    functions: &Functions,
    delims: Delimiters,
) -> Result<Trees, Error> {
    let tokens = lex(name, text, delims)?;
    let vars = vec!["$"];
    let mut parser =
        Parser { name, text, functions, tokens, next: 0, vars, ranges: 0, depth: 0, trees: Trees::new() };
    let (block, ending) = parser.block()?;
    if let Some((ending, at)) = ending {
        return parser.fail(at, format!("unexpected {{{{{}}}}}", ending.word()));
    }
    parser.define(0, name, block)?;
    Ok(parser.trees)
}

/// What ended a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    End,
    Else,
}

impl Ending {
    const fn word(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Else => "else",
        }
    }
}

pub(crate) struct Parser<'s> {
    name: &'s str,
    text: &'s str,
    pub(crate) functions: &'s Functions,
    tokens: Vec<Token<'s>>,
    pub(crate) next: usize,
    /// The variables in scope.
    pub(crate) vars: Vec<&'s str>,
    /// How many `range` surround this place.
    ranges: usize,
    pub(crate) depth: usize,
    trees: Trees,
}

pub(crate) type Parsed<T> = Result<T, Error>;

impl<'s> Parser<'s> {
    pub(crate) fn fail<T>(&self, at: usize, message: impl Into<String>) -> Parsed<T> {
        let (line, column) = place(self.text, at);
        let message = message.into();
        Err(Error { template: self.name.into(), line, column, expression: String::new(), message })
    }

    pub(crate) fn unexpected<T>(&self, token: Token<'_>, context: &str) -> Parsed<T> {
        let what = match token.kind {
            Kind::End => "end of the text".to_owned(),
            Kind::Keyword => format!("<{}>", token.text),
            _ => format!("{:?}", token.text),
        };
        self.fail(token.at, format!("unexpected {what} in {context}"))
    }

    pub(crate) fn peek(&self) -> Token<'s> {
        let end = Token { kind: Kind::End, at: self.text.len(), text: "" };
        self.tokens.get(self.next).copied().unwrap_or(end)
    }

    pub(crate) fn take(&mut self) -> Token<'s> {
        let token = self.peek();
        self.next += 1;
        token
    }

    pub(crate) fn peek_word(&mut self) -> Token<'s> {
        while self.peek().kind == Kind::Space {
            self.next += 1;
        }
        self.peek()
    }

    fn take_word(&mut self) -> Token<'s> {
        self.peek_word();
        self.take()
    }

    fn expect_close(&mut self, context: &str) -> Parsed<()> {
        let token = self.take_word();
        if token.kind == Kind::Close { Ok(()) } else { self.unexpected(token, context) }
    }

    pub(crate) fn deeper(&mut self, at: usize) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail(at, format!("nested more than {MAX_DEPTH} deep"));
        }
        Ok(())
    }

    fn define(&mut self, at: usize, name: &str, block: Block) -> Parsed<()> {
        let is_empty =
            |block: &Block| block.iter().all(|n| matches!(n, Node::Text(text) if text.trim().is_empty()));
        match self.trees.get(name) {
            Some(old) if !is_empty(old) && is_empty(&block) => Ok(()),
            Some(old) if !is_empty(old) => {
                self.fail(at, format!("template: multiple definition of template {name:?}"))
            }
            _ => {
                self.trees.insert(name.to_owned(), block);
                Ok(())
            }
        }
    }

    /// Nodes up to `end`, `else` or the end of the text.
    fn block(&mut self) -> Parsed<(Block, Option<(Ending, usize)>)> {
        let mut nodes = Block::new();
        loop {
            let token = self.take();
            match token.kind {
                Kind::Text => nodes.push(Node::Text(token.text.into())),
                Kind::End => return Ok((nodes, None)),
                _ => {}
            }
            if token.kind != Kind::Open {
                continue;
            }
            let word = self.peek_word();
            if word.kind != Kind::Keyword {
                nodes.push(Node::Action(self.pipeline("command", Kind::Close)?));
                continue;
            }
            self.take();
            match word.text {
                "end" => {
                    self.expect_close("end")?;
                    return Ok((nodes, Some((Ending::End, word.at))));
                }
                "else" => return Ok((nodes, Some((Ending::Else, word.at)))),
                "define" => self.definition(word.at)?,
                _ => nodes.push(self.control(word)?),
            }
        }
    }

    fn control(&mut self, word: Token<'s>) -> Parsed<Node> {
        match word.text {
            "if" => Ok(Node::If(self.branch(word.at, "if")?)),
            "with" => Ok(Node::With(self.branch(word.at, "with")?)),
            "range" => Ok(Node::Range(self.branch(word.at, "range")?)),
            "template" => self.template(word.at),
            "block" => self.inline_block(word.at),
            _ => {
                self.expect_close(word.text)?;
                if self.ranges == 0 {
                    return self.fail(word.at, format!("{{{{{}}}}} outside {{{{range}}}}", word.text));
                }
                Ok(if word.text == "break" { Node::Break } else { Node::Continue })
            }
        }
    }

    fn branch(&mut self, at: usize, context: &'static str) -> Parsed<Branch> {
        self.deeper(at)?;
        let vars = self.vars.len();
        let pipe = self.pipeline(context, Kind::Close)?;
        self.ranges += usize::from(context == "range");
        let (then, ending) = self.block()?;
        self.ranges -= usize::from(context == "range");
        let otherwise = match ending {
            None => {
                return self.fail(self.text.len(), format!("unexpected EOF: {context} is not closed"));
            }
            Some((Ending::End, _)) => Block::new(),
            Some((Ending::Else, at)) => self.otherwise(at, context)?,
        };
        self.vars.truncate(vars);
        self.depth -= 1;
        Ok(Branch { at, pipe, then, otherwise })
    }

    fn otherwise(&mut self, at: usize, context: &'static str) -> Parsed<Block> {
        let word = self.peek_word();
        if word.kind == Kind::Keyword && word.text == context && context != "range" {
            self.take();
            let branch = self.branch(word.at, context)?;
            return Ok(vec![if context == "if" { Node::If(branch) } else { Node::With(branch) }]);
        }
        self.expect_close("else")?;
        match self.block()? {
            (block, Some((Ending::End, _))) => Ok(block),
            (_, Some((Ending::Else, at))) => self.fail(at, "expected end; found {{else}}"),
            (_, None) => self.fail(at, "unexpected EOF: else is not closed"),
        }
    }

    fn template_name(&mut self, context: &str) -> Parsed<Arc<str>> {
        let token = self.take_word();
        if !matches!(token.kind, Kind::Str | Kind::Raw) {
            return self.unexpected(token, context);
        }
        self.string(token)
    }

    pub(crate) fn string(&self, token: Token<'_>) -> Parsed<Arc<str>> {
        match literal::unquote(token.text) {
            Some(value) => Ok(value.into()),
            None => self.fail(token.at, format!("invalid syntax in string {}", token.text)),
        }
    }

    fn template(&mut self, at: usize) -> Parsed<Node> {
        let name = self.template_name("template clause")?;
        let data = if self.peek_word().kind == Kind::Close {
            self.take();
            None
        } else {
            Some(self.pipeline("template", Kind::Close)?)
        };
        Ok(Node::Template { at, name: (&*name).into(), data })
    }

    fn inline_block(&mut self, at: usize) -> Parsed<Node> {
        let name = self.template_name("block clause")?;
        let data = self.pipeline("block", Kind::Close)?;
        self.body(at, &name)?;
        Ok(Node::Template { at, name: (&*name).into(), data: Some(data) })
    }

    fn definition(&mut self, at: usize) -> Parsed<()> {
        if self.depth > 0 {
            return self.fail(at, "unexpected {{define}}: expected it at the top level");
        }
        let name = self.template_name("define clause")?;
        self.expect_close("define clause")?;
        self.body(at, &name)
    }

    /// The text of a named template, which sees none of the variables around it.
    fn body(&mut self, at: usize, name: &str) -> Parsed<()> {
        self.deeper(at)?;
        let vars = std::mem::replace(&mut self.vars, vec!["$"]);
        let ranges = std::mem::take(&mut self.ranges);
        let (block, ending) = self.block()?;
        match ending {
            Some((Ending::End, _)) => {}
            Some((Ending::Else, at)) => return self.fail(at, "unexpected {{else}} in define clause"),
            None => return self.fail(self.text.len(), format!("unexpected EOF: {name:?} is not closed")),
        }
        self.vars = vars;
        self.ranges = ranges;
        self.depth -= 1;
        self.define(at, name, block)
    }
}
