//! Go's `text/template` with the functions of [sprig](https://masterminds.github.io/sprig/).
//!
//! A [`Template`] is parsed once with the [`Functions`] that it may call, is immutable, `Send` and `Sync`,
//! and renders any number of times. Values are Go's: see [`Value`], and [`Schema`] for structs over JSON.
//! Strings may have an [`Origin`]: where the output contains such a string, [`Rendered::spans`] has the
//! bytes.
//!
//! - [`Functions::builtin`] has Go's functions, [`Functions::add_sprig`] sprig's; [`Functions::add`] adds or
//!   replaces one.
//! - [`Template::parse`] (an [`Error`] names template, line, column), then [`Template::render`] with a
//!   [`Value`] and [`Limits`] gives [`Rendered`]: the text and its [`Span`]s.
//! - Data: [`Value::record`] for the root (fields by their Go names), [`Value::any`] for values
//!   (`map[string]any`), [`Value::str_map`] for `map[string]string`, [`Value::of_struct`] for JSON with a
//!   [`Schema`]. All of them borrow the JSON and look at it only where a template does. [`Kind`] says what a
//!   field is in Go.
//! - Origins: [`Field::from`]`("annotation")` in a schema, the last argument of `of_struct` and `str_map`, or
//!   [`Value::user_text`]. In a map the origin's key is the entry's; in a struct it is the field's JSON key.
//!   Functions that encode (`toJson`, checksums) clear it, all others pass it on.
//! - [`Rendered::reads`] has the fields of structs that the output depends on, so that a caller can keep it
//!   for data with the same fields.
//!
//! ```
//! use gotemplate::{Field, Functions, Kind, Limits, Options, Schema, Template, Value};
//!
//! static META: Schema = Schema {
//!     name: "v1.ObjectMeta",
//!     proto: false,
//!     fields: &[
//!         Field::new("Name", "name", Kind::Str).from("metadata"),
//!         Field::new("Annotations", "annotations", Kind::Map(&Kind::Str)).from("annotation"),
//!     ],
//! };
//!
//! let functions = Functions::builtin();
//! let text = "x: {{ index .ObjectMeta.Annotations `a` }}, port: {{ .Values.port }}";
//! let template = Template::parse("sidecar", text, &functions, Options::default())?;
//!
//! let meta = serde_json::json!({"name": "app", "annotations": {"a": "1"}});
//! let values = serde_json::json!({"port": 15020});
//! let data = Value::record("inject.SidecarTemplateData", vec![
//!     ("ObjectMeta", Value::of_struct(&META, meta.as_object(), None)),
//!     ("Values", Value::any(&values)),
//! ]);
//! let rendered = template.render(data, Limits::default())?;
//! assert_eq!(rendered.text, "x: 1, port: 15020");
//! assert_eq!((rendered.spans[0].start, rendered.spans[0].end), (3, 4));
//! assert_eq!(rendered.spans[0].origin.kind, "annotation");
//! assert_eq!(rendered.spans[0].origin.key, "a");
//! # Ok::<(), gotemplate::Error>(())
//! ```

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "most operations fit few sorts of values and refuse all others"
)]

mod builtin;
mod error;
mod exec;
mod functions;
pub mod json;
mod layout;
mod reads;
mod sprig;
mod syntax;
mod value;

pub use builtin::print::{float as float_text, text_of};
pub use error::Error;
pub use functions::{Body, Call, Func, Functions, Limits, Type, arg};
pub use reads::Reads;
pub use syntax::lex::Delimiters;
pub use value::schema::{EnumType, Field, Kind, Schema, is_same_name};
pub use value::text::{Origin, Span, Str, TextBuilder};
pub use value::{IntType, List, Map, OwnList, OwnMap, Record, Struct, Value};

use std::cell::RefCell;

use syntax::parse::{Trees, parse};

/// How a template is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The marks around actions.
    pub delimiters: Delimiters,
}

/// A parsed template and those that it defines.
#[derive(Debug)]
pub struct Template {
    name: String,
    text: String,
    trees: Trees,
}

/// What a template produced.
#[derive(Clone, Debug)]
pub struct Rendered<'a> {
    /// The text.
    pub text: String,
    /// The bytes of it that came from strings with an origin, in order; they may overlap.
    pub spans: Vec<Span<'a>>,
    /// What it was made of.
    pub reads: Reads,
}

impl Template {
    /// Parses `text`; every function it names must be in `functions`.
    pub fn parse(name: &str, text: &str, functions: &Functions, options: Options) -> Result<Self, Error> {
        let trees = parse(name, text, functions, options.delimiters)?;
        Ok(Self { name: name.to_owned(), text: text.to_owned(), trees })
    }

    /// The name of the template.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was parsed from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Renders it with `data` as dot.
    pub fn render<'a>(&'a self, data: Value<'a>, limits: Limits) -> Result<Rendered<'a>, Error> {
        let dot = data.clone();
        let mut state = exec::State {
            name: &self.name,
            text: &self.text,
            trees: &self.trees,
            out: TextBuilder::new(limits.output),
            vars: vec![("$", data)],
            args: Vec::new(),
            left: limits,
            reads: RefCell::default(),
        };
        if let Some(tree) = self.trees.get(&self.name) {
            state.block(&dot, tree).map_err(|e| *e)?;
        }
        let reads = state.reads.into_inner();
        let (text, spans) = state.out.into_parts();
        Ok(Rendered { text, spans, reads })
    }
}

/// The README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
