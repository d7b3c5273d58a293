//! Runs a syntax tree: control structures, pipelines, variables.

mod call;
mod field;
mod methods;

use std::cell::RefCell;

use crate::builtin::print::{print_action, shown};
use crate::error::{Error, place};
use crate::functions::Limits;
use crate::reads::Reads;
use crate::syntax::ast::{At, Block, Branch, Command, Expr, ExprKind, Node, Pipe};
use crate::syntax::parse::Trees;
use crate::value::text::{Str, TextBuilder};
use crate::value::{IntType, Value};

pub(crate) type Eval<T> = Result<T, Box<Error>>;

/// How a block ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Break,
    Continue,
}

pub(crate) struct State<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    pub(crate) trees: &'a Trees,
    pub(crate) out: TextBuilder<'a>,
    pub(crate) vars: Vec<(&'a str, Value<'a>)>,
    /// The arguments of the calls that are under way.
    pub(crate) args: Vec<Value<'a>>,
    pub(crate) left: Limits,
    pub(crate) reads: RefCell<Reads>,
}

impl<'a> State<'a> {
    /// An error at `at` in `expression`.
    pub(crate) fn fail<T>(
        &self,
        at: At,
        expression: &dyn std::fmt::Display,
        message: impl Into<String>,
    ) -> Eval<T> {
        let (line, column) = place(self.text, at);
        let expression = expression.to_string();
        Err(Box::new(Error { template: self.name.into(), line, column, expression, message: message.into() }))
    }

    pub(crate) fn step(&mut self, at: At, expression: &dyn std::fmt::Display) -> Eval<()> {
        self.steps(1, at, expression)
    }

    fn steps(&mut self, count: usize, at: At, expression: &dyn std::fmt::Display) -> Eval<()> {
        match self.left.steps.checked_sub(count) {
            Some(left) => {
                self.left.steps = left;
                Ok(())
            }
            None => self.fail(at, expression, "the template takes more steps than it may"),
        }
    }

    /// Runs `inner` one level deeper.
    pub(crate) fn nested<T>(
        &mut self,
        at: At,
        expression: &dyn std::fmt::Display,
        inner: impl FnOnce(&mut Self) -> Eval<T>,
    ) -> Eval<T> {
        let Some(left) = self.left.depth.checked_sub(1) else {
            return self.fail(at, expression, "exceeded maximum template depth");
        };
        self.left.depth = left;
        let result = inner(self);
        self.left.depth += 1;
        result
    }

    pub(crate) fn block(&mut self, dot: &Value<'a>, block: &'a Block) -> Eval<Flow> {
        for node in block {
            match self.node(dot, node)? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Value<'a>, node: &'a Node) -> Eval<Flow> {
        match node {
            Node::Text(text) => {
                if let Err(e) = self.out.plain(text) {
                    return self.fail(0, &"text", e);
                }
                Ok(Flow::Next)
            }
            Node::Action(pipe) => self.action(dot, pipe),
            Node::If(branch) => self.scoped(branch, |s| s.conditional(dot, branch, false)),
            Node::With(branch) => self.scoped(branch, |s| s.conditional(dot, branch, true)),
            Node::Range(branch) => self.scoped(branch, |s| s.range(dot, branch)),
            Node::Template { at, name, data } => self.template(dot, *at, name, data.as_ref()),
            Node::Break => Ok(Flow::Break),
            Node::Continue => Ok(Flow::Continue),
        }
    }

    fn action(&mut self, dot: &Value<'a>, pipe: &'a Pipe) -> Eval<Flow> {
        let value = self.pipeline(dot, pipe)?;
        if pipe.names.is_empty() {
            self.reads.get_mut().value(&value);
            if let Err(e) = print_action(&mut self.out, &value) {
                return self.fail(pipe.at, pipe, e);
            }
        }
        Ok(Flow::Next)
    }

    /// Variables declared inside end with the control structure.
    fn scoped(&mut self, branch: &'a Branch, inner: impl FnOnce(&mut Self) -> Eval<Flow>) -> Eval<Flow> {
        let mark = self.vars.len();
        let flow = self.nested(branch.at, &branch.pipe, inner);
        self.vars.truncate(mark);
        flow
    }

    fn conditional(&mut self, dot: &Value<'a>, branch: &'a Branch, with: bool) -> Eval<Flow> {
        let value = self.pipeline(dot, &branch.pipe)?;
        if !value.is_true() {
            self.block(dot, &branch.otherwise)
        } else if with {
            self.block(&value, &branch.then)
        } else {
            self.block(dot, &branch.then)
        }
    }

    fn range(&mut self, dot: &Value<'a>, branch: &'a Branch) -> Eval<Flow> {
        let value = self.pipeline(dot, &branch.pipe)?;
        self.steps(value.step_cost(), branch.at, &branch.pipe)?;
        let mark = self.vars.len();
        let ran = match &value {
            Value::Nil | Value::Null | Value::NilPtr(_) => false,
            Value::List(list) => {
                for i in 0..list.len() {
                    let index = Value::int(i64::try_from(i).unwrap_or(i64::MAX));
                    if self.iterate(branch, mark, index, &list.get(i).unwrap_or(Value::Nil))? {
                        break;
                    }
                }
                !list.is_empty()
            }
            Value::Map(map) => {
                for (key, item) in map.entries() {
                    if self.iterate(branch, mark, Value::Str(key), &item)? {
                        break;
                    }
                }
                !map.is_empty()
            }
            Value::Int(..) if branch.pipe.names.len() > 1 => {
                let message = format!("can't use {} to iterate over more than one variable", shown(&value));
                return self.fail(branch.at, &branch.pipe, message);
            }
            Value::Int(count, ty) => self.count(branch, mark, *count, *ty)?,
            other => {
                let message = format!("range can't iterate over {}", shown(other));
                return self.fail(branch.at, &branch.pipe, message);
            }
        };
        if ran { Ok(Flow::Next) } else { self.block(dot, &branch.otherwise) }
    }

    fn count(&mut self, branch: &'a Branch, mark: usize, count: i64, ty: IntType) -> Eval<bool> {
        for i in 0..count {
            if self.iterate(branch, mark, Value::Nil, &Value::Int(i, ty))? {
                break;
            }
        }
        Ok(count > 0)
    }

    /// One turn of a loop; `true` means break.
    fn iterate(&mut self, branch: &'a Branch, mark: usize, index: Value<'a>, item: &Value<'a>) -> Eval<bool> {
        self.step(branch.at, &branch.pipe)?;
        let names = &branch.pipe.names;
        // With one variable it takes the element, with two the first one takes the index.
        let both = match names.as_slice() {
            [] => [None, None],
            [only] => [None, Some((only, item.clone()))],
            [first, second, ..] => [Some((first, index)), Some((second, item.clone()))],
        };
        for (offset, (name, value)) in both.into_iter().flatten().enumerate() {
            if branch.pipe.assigns {
                self.assign(branch.at, &branch.pipe, name, value)?;
            } else if let Some(slot) = self.vars.get_mut(mark - names.len() + offset) {
                slot.1 = value;
            }
        }
        let flow = self.block(item, &branch.then);
        self.vars.truncate(mark);
        Ok(flow? == Flow::Break)
    }

    fn template(&mut self, dot: &Value<'a>, at: At, name: &'a str, data: Option<&'a Pipe>) -> Eval<Flow> {
        let shown = format_args!("template {name:?}");
        let Some((name, tree)) = self.trees.get_key_value(name) else {
            return self.fail(at, &shown, format!("template {name:?} not defined"));
        };
        self.step(at, &shown)?;
        let dot = match data {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Value::Nil,
        };
        let vars = std::mem::replace(&mut self.vars, vec![("$", dot.clone())]);
        let outer = std::mem::replace(&mut self.name, name);
        self.nested(at, &shown, |s| s.block(&dot, tree))?;
        self.vars = vars;
        self.name = outer;
        Ok(Flow::Next)
    }

    /// The value of a pipeline; its variables are declared or assigned.
    pub(crate) fn pipeline(&mut self, dot: &Value<'a>, pipe: &'a Pipe) -> Eval<Value<'a>> {
        self.step(pipe.at, pipe)?;
        let mut value: Option<Value<'a>> = None;
        for command in &pipe.commands {
            let result = self.command(dot, command, value.take())?;
            value = Some(if matches!(result, Value::Null) { Value::Nil } else { result });
        }
        let value = value.unwrap_or(Value::Nil);
        for name in &pipe.names {
            if pipe.assigns {
                self.assign(pipe.at, pipe, name, value.clone())?;
            } else {
                self.vars.push((name, value.clone()));
            }
        }
        Ok(value)
    }

    fn assign(&mut self, at: At, pipe: &'a Pipe, name: &str, value: Value<'a>) -> Eval<()> {
        match self.vars.iter_mut().rev().find(|(n, _)| *n == name) {
            Some(slot) => {
                slot.1 = value;
                Ok(())
            }
            None => self.fail(at, pipe, format!("undefined variable: {name}")),
        }
    }

    pub(crate) fn variable(&self, at: At, expr: &Expr, name: &str) -> Eval<&Value<'a>> {
        match self.vars.iter().rev().find(|(n, _)| *n == name) {
            Some((_, value)) => Ok(value),
            None => self.fail(at, expr, format!("undefined variable: {name}")),
        }
    }

    /// The value of a command; `piped` is the value of the command before it.
    fn command(
        &mut self,
        dot: &Value<'a>,
        command: &'a Command,
        piped: Option<Value<'a>>,
    ) -> Eval<Value<'a>> {
        let Some((first, args)) = command.args.split_first() else {
            return Ok(Value::Nil);
        };
        match &first.kind {
            ExprKind::Func(func) => return self.call(dot, first.at, command, func, args, piped),
            ExprKind::Field(fields) => {
                return self.fields(dot, first, fields, !args.is_empty() || piped.is_some());
            }
            ExprKind::Variable { name, fields } if !fields.is_empty() => {
                let base = self.variable(first.at, first, name)?;
                return self.fields(base, first, fields, !args.is_empty() || piped.is_some());
            }
            ExprKind::Chain { base, fields } => {
                let base = self.chain_base(dot, base)?;
                return self.fields(&base, first, fields, !args.is_empty() || piped.is_some());
            }
            _ => {}
        }
        if !args.is_empty() || piped.is_some() {
            return self.fail(first.at, first, format!("can't give argument to non-function {first}"));
        }
        if matches!(first.kind, ExprKind::Nil) {
            return self.fail(first.at, first, "nil is not a command");
        }
        self.simple(dot, first)
    }

    fn chain_base(&mut self, dot: &Value<'a>, base: &'a Expr) -> Eval<Value<'a>> {
        if matches!(base.kind, ExprKind::Nil) {
            return self.fail(base.at, base, "indirection through explicit nil");
        }
        self.simple(dot, base)
    }

    /// An operand alone, with its own type.
    pub(crate) fn simple(&mut self, dot: &Value<'a>, expr: &'a Expr) -> Eval<Value<'a>> {
        match &expr.kind {
            ExprKind::Dot => Ok(dot.clone()),
            ExprKind::Nil => Ok(Value::Nil),
            ExprKind::Bool(b) => Ok(Value::Bool(*b)),
            ExprKind::Str { value, .. } => Ok(Value::Str(Str::borrowed(value))),
            ExprKind::Number(number) => match (number.int, number.float) {
                (_, Some(float)) if number.is_float => Ok(Value::Float(float)),
                (Some(int), _) => Ok(Value::int(int)),
                _ => self.fail(expr.at, expr, format!("{} overflows int", number.text)),
            },
            ExprKind::Field(fields) => self.fields(dot, expr, fields, false),
            ExprKind::Variable { name, fields } => {
                let base = self.variable(expr.at, expr, name)?;
                self.fields(base, expr, fields, false)
            }
            ExprKind::Chain { base, fields } => {
                let base = self.chain_base(dot, base)?;
                self.fields(&base, expr, fields, false)
            }
            ExprKind::Func(func) => self.call(dot, expr.at, expr, func, &[], None),
            ExprKind::Pipe(pipe) => self.nested(expr.at, expr, |s| s.pipeline(dot, pipe)),
        }
    }
}
