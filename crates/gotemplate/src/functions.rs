//! The functions a template may call: their names, the Go types of their parameters, their bodies.

use crate::value::Value;
use crate::value::text::{MAX_NESTING, TextBuilder, too_deep};
use std::collections::HashMap;
use std::sync::Arc;

/// What a function's body is: checked arguments in, a value or a message out.
pub trait Body: for<'a> Fn(&mut Call<'_>, &[Value<'a>]) -> Result<Value<'a>, String> + Send + Sync {}

impl<F> Body for F where F: for<'a> Fn(&mut Call<'_>, &[Value<'a>]) -> Result<Value<'a>, String> + Send + Sync {}

/// The Go type of a parameter. Arguments are checked against it, as Go does, before the body runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `any`
    Any,
    /// `string`
    Str,
    /// `int`
    Int,
    /// `float64`
    Float,
    /// `bool`
    Bool,
    /// `map[string]any`
    AnyMap,
    /// `map[string]string`
    StrMap,
    /// A struct, or a protobuf message, of this name.
    Struct(&'static str),
    /// A slice of structs of this name.
    Structs(&'static str),
    /// Any protobuf message, also a nil one.
    Message,
    /// `*durationpb.Duration`
    Duration,
}

impl Type {
    /// Go's name of the type.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Any => "interface {}".into(),
            Self::Str => "string".into(),
            Self::Int => "int".into(),
            Self::Float => "float64".into(),
            Self::Bool => "bool".into(),
            Self::AnyMap => "map[string]interface {}".into(),
            Self::StrMap => "map[string]string".into(),
            Self::Struct(name) => name.into(),
            Self::Structs(name) => format!("[]{name}"),
            Self::Message => "protoreflect.ProtoMessage".into(),
            Self::Duration => "*durationpb.Duration".into(),
        }
    }

    /// Whether nil may be passed for it.
    #[must_use]
    pub const fn takes_nil(self) -> bool {
        !matches!(self, Self::Str | Self::Int | Self::Float | Self::Bool | Self::Struct(_))
    }
}

pub(crate) enum Code {
    /// Short-circuit; the evaluator does it.
    And,
    /// Short-circuit; the evaluator does it.
    Or,
    Body(Box<dyn Body>),
}

/// A function with its signature.
pub struct Func {
    pub(crate) name: Box<str>,
    pub(crate) params: Box<[Type]>,
    pub(crate) rest: Option<Type>,
    pub(crate) code: Code,
    /// The fields that it reads of structs; `None`: it may read all.
    pub(crate) reads: Option<&'static [&'static str]>,
    /// Whether its result depends on more than its arguments.
    pub(crate) volatile: bool,
}

impl std::fmt::Debug for Func {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "func {}{:?} rest {:?}", self.name, self.params, self.rest)
    }
}

/// The functions that templates are parsed with. A later one replaces an earlier one of the same name.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    by_name: HashMap<Box<str>, Arc<Func>>,
}

impl Functions {
    /// No function at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a function: `params`, then any number of `rest`.
    pub fn add(&mut self, name: &str, params: &[Type], rest: Option<Type>, body: impl Body + 'static) {
        self.insert(name, params, rest, Code::Body(Box::new(body)));
    }

    pub(crate) fn insert(&mut self, name: &str, params: &[Type], rest: Option<Type>, code: Code) {
        let (name, params) = (Box::from(name), params.into());
        let func = Func { name, params, rest, code, reads: None, volatile: false };
        self.by_name.insert(func.name.clone(), Arc::new(func));
    }

    /// Of the structs that its parameters name, the function reads these fields only, and it returns none of
    /// these structs. Without this, all of an argument counts as read: see [`Reads`](crate::Reads).
    pub fn limit_reads(&mut self, name: &str, fields: &'static [&'static str]) {
        self.change(name, |func| func.reads = Some(fields));
    }

    /// The function's result depends on more than its arguments, such as the time: see
    /// [`Reads`](crate::Reads).
    pub fn mark_volatile(&mut self, name: &str) {
        self.change(name, |func| func.volatile = true);
    }

    /// A function that templates were parsed with does not change any more.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Func)) {
        if let Some(func) = self.by_name.get_mut(name).and_then(Arc::get_mut) {
            change(func);
        }
    }

    /// The function of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<Func>> {
        self.by_name.get(name).cloned()
    }

    /// All names, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.by_name.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }
}

/// An argument that the signature promises; nil where there is none.
#[must_use]
pub fn arg<'v, 'a>(args: &'v [Value<'a>], index: usize) -> &'v Value<'a> {
    args.get(index).unwrap_or(&Value::Nil)
}

/// Bounds on one rendering. Reaching one is an error, never a panic.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of output.
    pub output: usize,
    /// Most bytes of intermediate values, all of them added up.
    pub memory: usize,
    /// Most evaluated nodes.
    pub steps: usize,
    /// How deep templates, control structures and parentheses may nest while they run.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { output: 8 << 20, memory: 64 << 20, steps: 1_000_000, depth: 150 }
    }
}

/// What is left of the limits while a function runs.
#[derive(Debug)]
pub struct Call<'l> {
    pub(crate) left: &'l mut Limits,
}

impl Call<'_> {
    /// Accounts for `bytes` of work or memory; call it before producing much out of little.
    pub fn spend(&mut self, bytes: usize) -> Result<(), String> {
        take(&mut self.left.memory, bytes, "uses more memory")
    }

    /// Accounts for `steps` of work, each about as much as evaluating a node.
    pub fn work(&mut self, steps: usize) -> Result<(), String> {
        take(&mut self.left.steps, steps, "takes more steps")
    }

    /// Accounts for a value that is `depth` levels inside another; values may not nest without end.
    pub fn nest(&mut self, depth: usize) -> Result<(), String> {
        self.spend(16)?;
        if depth > MAX_NESTING { Err(too_deep()) } else { Ok(()) }
    }

    /// A text that can grow as far as the limits allow.
    #[must_use]
    pub fn text<'a>(&self) -> TextBuilder<'a> {
        TextBuilder::new(self.left.memory)
    }
}

fn take(left: &mut usize, amount: usize, what: &str) -> Result<(), String> {
    *left = left.checked_sub(amount).ok_or_else(|| format!("the template {what} than it may"))?;
    Ok(())
}
