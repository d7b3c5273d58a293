//! The parsed form of a template.

use crate::functions::Func;
use std::fmt::{Display, Formatter, Result};
use std::sync::Arc;

/// A byte offset into the template's text.
pub(crate) type At = usize;

/// What a template or the body of a control structure consists of.
pub(crate) type Block = Vec<Node>;

#[derive(Debug)]
pub(crate) enum Node {
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
pub(crate) struct Branch {
    pub(crate) at: At,
    pub(crate) pipe: Pipe,
    pub(crate) then: Block,
    pub(crate) otherwise: Block,
}

#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) at: At,
    /// Variables that are declared or assigned.
    pub(crate) names: Vec<Box<str>>,
    /// `=` and not `:=`.
    pub(crate) assigns: bool,
    pub(crate) commands: Vec<Command>,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) at: At,
    /// Never empty.
    pub(crate) args: Vec<Expr>,
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) at: At,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
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
pub(crate) struct Number {
    pub(crate) text: Box<str>,
    pub(crate) int: Option<i64>,
    pub(crate) float: Option<f64>,
    /// Written with a point or an exponent.
    pub(crate) is_float: bool,
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
