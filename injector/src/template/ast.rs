//! The parsed form of a template.

use super::funcs::Func;
use std::fmt::{Display, Formatter, Result};
use std::sync::Arc;

/// A byte offset into the template's text.
pub(super) type At = usize;

/// What a template or the body of a control structure consists of.
pub(super) type Block = Vec<Node>;

#[derive(Debug)]
pub(super) enum Node {
    Text(Box<str>),
    Action(Pipe),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { at: At, name: Box<str>, data: Option<Pipe> },
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct Branch {
    pub(super) at: At,
    pub(super) pipe: Pipe,
    pub(super) then: Block,
    pub(super) otherwise: Block,
}

#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) at: At,
    /// Variables that are declared or assigned.
    pub(super) names: Vec<Box<str>>,
    /// `=` and not `:=`.
    pub(super) assigns: bool,
    pub(super) commands: Vec<Command>,
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) at: At,
    /// Never empty.
    pub(super) args: Vec<Expr>,
}

#[derive(Debug)]
pub(super) struct Expr {
    pub(super) at: At,
    pub(super) kind: ExprKind,
}

#[derive(Debug)]
pub(super) enum ExprKind {
    Dot,
    Nil,
    Bool(bool),
    Number(Number),
    Str { value: Arc<str>, quoted: Box<str> },
    Field(Vec<Box<str>>),
    Variable { name: Box<str>, fields: Vec<Box<str>> },
    Chain { base: Box<Expr>, fields: Vec<Box<str>> },
    Func(Arc<Func>),
    Pipe(Box<Pipe>),
}

/// A numeric constant: what it may be used as.
#[derive(Debug)]
pub(super) struct Number {
    pub(super) text: Box<str>,
    pub(super) int: Option<i64>,
    pub(super) float: Option<f64>,
    /// Written with a point or an exponent.
    pub(super) is_float: bool,
}

impl Display for Pipe {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if !self.names.is_empty() {
            let sign = if self.assigns { "=" } else { ":=" };
            write!(f, "{} {sign} ", self.names.join(", "))?;
        }
        for (i, command) in self.commands.iter().enumerate() {
            if i > 0 {
                f.write_str(" | ")?;
            }
            write!(f, "{command}")?;
        }
        Ok(())
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (i, arg) in self.args.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{arg}")?;
        }
        Ok(())
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let dotted = |f: &mut Formatter<'_>, fields: &[Box<str>]| {
            fields.iter().try_for_each(|field| write!(f, ".{field}"))
        };
        match &self.kind {
            ExprKind::Dot => f.write_str("."),
            ExprKind::Nil => f.write_str("nil"),
            ExprKind::Bool(b) => write!(f, "{b}"),
            ExprKind::Number(n) => f.write_str(&n.text),
            ExprKind::Str { quoted, .. } => f.write_str(quoted),
            ExprKind::Field(fields) => dotted(f, fields),
            ExprKind::Variable { name, fields } => {
                f.write_str(name)?;
                dotted(f, fields)
            }
            ExprKind::Chain { base, fields } => {
                write!(f, "{base}")?;
                dotted(f, fields)
            }
            ExprKind::Func(func) => f.write_str(&func.name),
            ExprKind::Pipe(pipe) => write!(f, "({pipe})"),
        }
    }
}
