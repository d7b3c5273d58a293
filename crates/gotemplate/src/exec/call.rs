//! Calls: arguments are evaluated and checked against the parameters' Go types.

use crate::exec::{Eval, State};
use crate::functions::{Call, Code, Func, Type};
use crate::syntax::ast::{At, Expr, ExprKind};
use crate::value::schema::Kind;
use crate::value::text::Str;
use crate::value::{IntType, List, Map, Value};
use std::fmt::Display;

impl<'a> State<'a> {
    pub(crate) fn call(
        &mut self,
        dot: &Value<'a>,
        at: At,
        shown: &'a dyn Display,
        func: &'a Func,
        args: &'a [Expr],
        piped: Option<Value<'a>>,
    ) -> Eval<Value<'a>> {
        self.step(at, shown)?;
        self.count_args(at, shown, func, args.len() + usize::from(piped.is_some()))?;
        let body = match &func.code {
            Code::And => return self.short_circuit(dot, args, piped, false),
            Code::Or => return self.short_circuit(dot, args, piped, true),
            Code::Body(body) => body,
        };
        let mark = self.args.len();
        for (i, arg) in args.iter().enumerate() {
            let value = self.argument(dot, param(func, i), arg)?;
            self.args.push(value);
        }
        if let Some(value) = piped {
            match check(value, param(func, args.len())) {
                Ok(value) => self.args.push(value),
                Err(message) => return self.fail(at, shown, message),
            }
        }
        let values = self.args.get(mark..).unwrap_or_default();
        self.reads.get_mut().call(func, values);
        let mut call = Call { left: &mut self.left };
        let cost = values.iter().map(Value::step_cost).fold(0, usize::saturating_add);
        let result = call.work(cost).and_then(|()| body(&mut call, values)).and_then(|value| {
            call.spend(weight(&value))?;
            Ok(value)
        });
        self.args.truncate(mark);
        match result {
            Ok(value) => Ok(value),
            Err(message) => self.fail(at, shown, format!("error calling {}: {message}", func.name)),
        }
    }

    fn count_args(&self, at: At, shown: &dyn Display, func: &Func, given: usize) -> Eval<()> {
        let fixed = func.params.len();
        let bad = if func.rest.is_some() { given < fixed } else { given != fixed };
        if !bad {
            return Ok(());
        }
        let least = if func.rest.is_some() { "at least " } else { "" };
        let message = format!("wrong number of args for {}: want {least}{fixed} got {given}", func.name);
        self.fail(at, shown, message)
    }

    /// `and`, `or`: the first argument that decides, else the last one.
    fn short_circuit(
        &mut self,
        dot: &Value<'a>,
        args: &'a [Expr],
        piped: Option<Value<'a>>,
        decisive: bool,
    ) -> Eval<Value<'a>> {
        let mut value = Value::Nil;
        for arg in args {
            value = self.argument(dot, Type::Any, arg)?;
            if value.is_true() == decisive {
                return Ok(value);
            }
        }
        Ok(piped.unwrap_or(value))
    }

    fn argument(&mut self, dot: &Value<'a>, ty: Type, arg: &'a Expr) -> Eval<Value<'a>> {
        let constant = match (&arg.kind, ty) {
            (ExprKind::Nil, _) if ty.takes_nil() => return Ok(nil_of(ty)),
            (ExprKind::Nil, _) => {
                return self.fail(arg.at, arg, format!("cannot assign nil to {}", ty.name()));
            }
            (ExprKind::Number(n), Type::Int) => n.int.map(Value::int),
            (ExprKind::Number(n), Type::Float) => n.float.map(Value::Float),
            (ExprKind::Bool(b), Type::Bool) => Some(Value::Bool(*b)),
            (ExprKind::Str { value, .. }, Type::Str) => Some(Value::Str(Str::borrowed(value))),
            (ExprKind::Number(_) | ExprKind::Bool(_) | ExprKind::Str { .. }, _) if ty != Type::Any => None,
            _ => {
                let value = self.simple(dot, arg)?;
                return match check(value, ty) {
                    Ok(value) => Ok(value),
                    Err(message) => self.fail(arg.at, arg, message),
                };
            }
        };
        match (constant, ty) {
            (Some(value), _) => Ok(value),
            (None, Type::Str | Type::Bool | Type::Float) => {
                self.fail(arg.at, arg, format!("expected {}; found {arg}", ty.name().replace("64", "")))
            }
            (None, Type::Int) => self.fail(arg.at, arg, format!("expected integer; found {arg}")),
            (None, _) => self.fail(arg.at, arg, format!("can't handle {arg} for arg of type {}", ty.name())),
        }
    }
}

fn param(func: &Func, index: usize) -> Type {
    func.params.get(index).copied().or(func.rest).unwrap_or(Type::Any)
}

const fn nil_of<'a>(ty: Type) -> Value<'a> {
    match ty {
        Type::StrMap => Value::Map(Map::Json { entries: None, elem: &Kind::Str, origin: None }),
        Type::AnyMap => Value::any_map(None),
        _ => Value::Nil,
    }
}

/// Go's assignability, with one level of indirection.
fn check(value: Value<'_>, ty: Type) -> Result<Value<'_>, String> {
    let fits = match (&value, ty) {
        (Value::Nil, _) if ty.takes_nil() => return Ok(nil_of(ty)),
        (Value::Null, Type::Any) => return Ok(Value::Nil),
        (Value::Null, _) => {
            return Err(format!("wrong type for value; expected {}; got interface {{}}", ty.name()));
        }
        (Value::Nil, _) => return Err(format!("invalid value; expected {}", ty.name())),
        (_, Type::Any)
        | (Value::Str(_), Type::Str)
        | (Value::Int(_, IntType::Int), Type::Int)
        | (Value::Float(_), Type::Float)
        | (Value::Bool(_), Type::Bool)
        | (Value::Duration(_), Type::Duration) => true,
        (Value::Ptr(inner), Type::Str | Type::Int | Type::Float | Type::Bool) => {
            return check((**inner).clone(), ty);
        }
        (Value::Map(map), Type::AnyMap) => map.elem_name() == "interface {}",
        (Value::Map(map), Type::StrMap) => map.elem_name() == "string",
        (Value::Struct(s), Type::Struct(name)) => s.schema.name == name,
        (Value::Record(r), Type::Struct(name)) => r.name == name,
        (Value::Struct(s), Type::Message) => s.schema.proto,
        (Value::NilPtr(Kind::Struct(s)), Type::Message) => s.proto,
        (Value::NilPtr(Kind::Duration), Type::Duration) => true,
        (Value::List(list), Type::Structs(name)) => list.elem_name() == name,
        _ => false,
    };
    if fits {
        return Ok(value);
    }
    Err(format!("wrong type for value; expected {}; got {}", ty.name(), value.type_name()))
}

/// What a result adds to the memory in use.
fn weight(value: &Value<'_>) -> usize {
    match value {
        Value::Str(s) => s.as_str().len(),
        Value::List(list @ List::Own(_)) => list.len().saturating_mul(64),
        Value::Map(map @ Map::Own(_)) => map.len().saturating_mul(64),
        _ => 0,
    }
}
