//! Pipelines: declarations, commands, operands.

use crate::syntax::ast::{Command, Expr, ExprKind, Pipe};
use crate::syntax::lex::{Kind, Token};
use crate::syntax::literal;
use crate::syntax::parse::{Parsed, Parser};

impl Parser<'_> {
    pub(crate) fn pipeline(&mut self, context: &'static str, end: Kind) -> Parsed<Pipe> {
        let at = self.peek_word().at;
        self.deeper(at)?;
        let mut pipe = Pipe { at, names: Vec::new(), assigns: false, commands: Vec::new() };
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
                    if !matches!(self.peek_word().kind, Kind::Variable | Kind::Close | Kind::RightParen) {
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
                term = Expr { at, kind: ExprKind::Chain { base: Box::new(term), fields: names } };
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
            Kind::Variable if self.vars.contains(&token.text) => {
                ExprKind::Variable { name: token.text.into(), fields: Vec::new() }
            }
            Kind::Variable => return self.fail(token.at, format!("undefined variable {:?}", token.text)),
            Kind::Char | Kind::Number => match literal::number(token.text) {
                Some(number) => ExprKind::Number(number),
                None => return self.fail(token.at, format!("bad number syntax: {:?}", token.text)),
            },
            Kind::Str | Kind::Raw => ExprKind::Str { value: self.string(token)?, quoted: token.text.into() },
            Kind::LeftParen => {
                self.take();
                let pipe = self.pipeline("parenthesized pipeline", Kind::RightParen)?;
                return Ok(Some(Expr { at: token.at, kind: ExprKind::Pipe(Box::new(pipe)) }));
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
