//! Tokens → syntax tree.

use super::ast::{Block, Branch, Command, Expr, ExprKind, Node, Pipe};
use super::error::{Error, place};
use super::funcs::Functions;
use super::lex::{Delimiters, Kind, Token, lex};
use super::literal;
use std::collections::HashMap;
use std::sync::Arc;

/// How deep control structures and parentheses may nest.
const MAX_DEPTH: usize = 60;

/// The templates of one text: its own and those that it defines.
pub(super) type Trees = HashMap<String, Block>;

pub(super) fn parse(
    name: &str,
    text: &str,
    functions: &Functions,
    delims: Delimiters,
) -> Result<Trees, Error> {
    let tokens = lex(name, text, delims)?;
    let vars = vec!["$"];
    let mut parser = Parser {
        name,
        text,
        functions,
        tokens,
        next: 0,
        vars,
        ranges: 0,
        depth: 0,
        trees: Trees::new(),
    };
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

struct Parser<'s> {
    name: &'s str,
    text: &'s str,
    functions: &'s Functions,
    tokens: Vec<Token<'s>>,
    next: usize,
    /// The variables in scope.
    vars: Vec<&'s str>,
    /// How many `range` surround this place.
    ranges: usize,
    depth: usize,
    trees: Trees,
}

type Parsed<T> = Result<T, Error>;

impl<'s> Parser<'s> {
    fn fail<T>(&self, at: usize, message: impl Into<String>) -> Parsed<T> {
        let (line, column) = place(self.text, at);
        let message = message.into();
        Err(Error {
            template: self.name.into(),
            line,
            column,
            expression: String::new(),
            message,
        })
    }

    fn unexpected<T>(&self, token: Token<'_>, context: &str) -> Parsed<T> {
        let what = match token.kind {
            Kind::End => "end of the text".to_owned(),
            Kind::Keyword => format!("<{}>", token.text),
            _ => format!("{:?}", token.text),
        };
        self.fail(token.at, format!("unexpected {what} in {context}"))
    }

    fn peek(&self) -> Token<'s> {
        let end = Token {
            kind: Kind::End,
            at: self.text.len(),
            text: "",
        };
        self.tokens.get(self.next).copied().unwrap_or(end)
    }

    fn take(&mut self) -> Token<'s> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn peek_word(&mut self) -> Token<'s> {
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
        if token.kind == Kind::Close {
            Ok(())
        } else {
            self.unexpected(token, context)
        }
    }

    fn deeper(&mut self, at: usize) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail(at, format!("nested more than {MAX_DEPTH} deep"));
        }
        Ok(())
    }

    fn define(&mut self, at: usize, name: &str, block: Block) -> Parsed<()> {
        let is_empty = |block: &Block| {
            block
                .iter()
                .all(|n| matches!(n, Node::Text(text) if text.trim().is_empty()))
        };
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
                Ok(if word.text == "break" {
                    Node::Break
                } else {
                    Node::Continue
                })
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
                return self.fail(
                    self.text.len(),
                    format!("unexpected EOF: {context} is not closed"),
                );
            }
            Some((Ending::End, _)) => Block::new(),
            Some((Ending::Else, at)) => self.otherwise(at, context)?,
        };
        self.vars.truncate(vars);
        self.depth -= 1;
        Ok(Branch {
            at,
            pipe,
            then,
            otherwise,
        })
    }

    fn otherwise(&mut self, at: usize, context: &'static str) -> Parsed<Block> {
        let word = self.peek_word();
        if word.kind == Kind::Keyword && word.text == context && context != "range" {
            self.take();
            let branch = self.branch(word.at, context)?;
            return Ok(vec![if context == "if" {
                Node::If(branch)
            } else {
                Node::With(branch)
            }]);
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

    fn string(&self, token: Token<'_>) -> Parsed<Arc<str>> {
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
        Ok(Node::Template {
            at,
            name: (&*name).into(),
            data,
        })
    }

    fn inline_block(&mut self, at: usize) -> Parsed<Node> {
        let name = self.template_name("block clause")?;
        let data = self.pipeline("block", Kind::Close)?;
        self.body(at, &name)?;
        Ok(Node::Template {
            at,
            name: (&*name).into(),
            data: Some(data),
        })
    }

    fn definition(&mut self, at: usize) -> Parsed<()> {
        if self.depth > 0 {
            return self.fail(at, "unexpected {{define}}: it stands at the top level only");
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

    fn pipeline(&mut self, context: &'static str, end: Kind) -> Parsed<Pipe> {
        let at = self.peek_word().at;
        self.deeper(at)?;
        let mut pipe = Pipe {
            at,
            names: Vec::new(),
            assigns: false,
            commands: Vec::new(),
        };
        self.declarations(context, &mut pipe)?;
        loop {
            let token = self.peek_word();
            match token.kind {
                _ if token.kind == end => break,
                Kind::Bool
                | Kind::Char
                | Kind::Dot
                | Kind::Field
                | Kind::Ident
                | Kind::Number
                | Kind::Nil
                | Kind::Raw
                | Kind::Str
                | Kind::Variable
                | Kind::LeftParen => pipe.commands.push(self.command()?),
                _ => return self.unexpected(token, context),
            }
        }
        self.take();
        self.depth -= 1;
        self.check(&pipe, context)?;
        Ok(pipe)
    }

    fn declarations(&mut self, context: &'static str, pipe: &mut Pipe) -> Parsed<()> {
        while self.peek_word().kind == Kind::Variable {
            let start = self.next;
            let variable = self.take();
            match self.peek_word().kind {
                Kind::Assign | Kind::Declare => {
                    pipe.assigns = self.take().kind == Kind::Assign;
                    pipe.names.push(variable.text.into());
                    self.vars.push(variable.text);
                    return Ok(());
                }
                Kind::Comma if context == "range" && pipe.names.is_empty() => {
                    self.take();
                    pipe.names.push(variable.text.into());
                    self.vars.push(variable.text);
                    if !matches!(
                        self.peek_word().kind,
                        Kind::Variable | Kind::Close | Kind::RightParen
                    ) {
                        return self.fail(variable.at, "range can only initialize variables");
                    }
                }
                Kind::Comma => return self.fail(variable.at, format!("too many declarations in {context}")),
                _ => {
                    self.next = start;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn check(&self, pipe: &Pipe, context: &str) -> Parsed<()> {
        if pipe.commands.is_empty() {
            return self.fail(pipe.at, format!("missing value for {context}"));
        }
        for (i, command) in pipe.commands.iter().enumerate().skip(1) {
            let first = command.args.first().map(|arg| &arg.kind);
            if let Some(
                ExprKind::Bool(_)
                | ExprKind::Dot
                | ExprKind::Nil
                | ExprKind::Number(_)
                | ExprKind::Str { .. },
            ) = first
            {
                let message = format!("non executable command in pipeline stage {}", i + 1);
                return self.fail(command.at, message);
            }
        }
        Ok(())
    }

    fn command(&mut self) -> Parsed<Command> {
        let at = self.peek_word().at;
        let mut args = Vec::new();
        loop {
            self.peek_word();
            if let Some(operand) = self.operand()? {
                args.push(operand);
            }
            let token = self.peek();
            match token.kind {
                Kind::Space => continue,
                Kind::Close | Kind::RightParen => break,
                Kind::Pipe => {
                    self.take();
                    break;
                }
                _ => return self.unexpected(token, "operand"),
            }
        }
        if args.is_empty() {
            return self.fail(at, "empty command");
        }
        Ok(Command { at, args })
    }

    fn operand(&mut self) -> Parsed<Option<Expr>> {
        let Some(mut term) = self.term()? else {
            return Ok(None);
        };
        let mut names = Vec::new();
        while self.peek().kind == Kind::Field {
            names.push(field_name(self.take()));
        }
        if names.is_empty() {
            return Ok(Some(term));
        }
        match &mut term.kind {
            ExprKind::Field(fields) | ExprKind::Variable { fields, .. } => fields.append(&mut names),
            ExprKind::Bool(_)
            | ExprKind::Str { .. }
            | ExprKind::Number(_)
            | ExprKind::Nil
            | ExprKind::Dot => {
                return self.fail(term.at, format!("unexpected . after term {:?}", term.to_string()));
            }
            ExprKind::Chain { .. } | ExprKind::Func(_) | ExprKind::Pipe(_) => {
                let at = term.at;
                term = Expr {
                    at,
                    kind: ExprKind::Chain {
                        base: Box::new(term),
                        fields: names,
                    },
                };
            }
        }
        Ok(Some(term))
    }

    fn term(&mut self) -> Parsed<Option<Expr>> {
        let token = self.peek_word();
        let kind = match token.kind {
            Kind::Ident => match self.functions.find(token.text) {
                Some(function) => ExprKind::Func(function),
                None => return self.fail(token.at, format!("function {:?} not defined", token.text)),
            },
            Kind::Dot => ExprKind::Dot,
            Kind::Nil => ExprKind::Nil,
            Kind::Bool => ExprKind::Bool(token.text == "true"),
            Kind::Field => ExprKind::Field(vec![field_name(token)]),
            Kind::Variable if self.vars.contains(&token.text) => ExprKind::Variable {
                name: token.text.into(),
                fields: Vec::new(),
            },
            Kind::Variable => return self.fail(token.at, format!("undefined variable {:?}", token.text)),
            Kind::Char | Kind::Number => match literal::number(token.text) {
                Some(number) => ExprKind::Number(number),
                None => return self.fail(token.at, format!("bad number syntax: {:?}", token.text)),
            },
            Kind::Str | Kind::Raw => ExprKind::Str {
                value: self.string(token)?,
                quoted: token.text.into(),
            },
            Kind::LeftParen => {
                self.take();
                let pipe = self.pipeline("parenthesized pipeline", Kind::RightParen)?;
                return Ok(Some(Expr {
                    at: token.at,
                    kind: ExprKind::Pipe(Box::new(pipe)),
                }));
            }
            _ => return Ok(None),
        };
        self.take();
        Ok(Some(Expr { at: token.at, kind }))
    }
}

fn field_name(token: Token<'_>) -> Box<str> {
    token.text.trim_start_matches('.').into()
}
