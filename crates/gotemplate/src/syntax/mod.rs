//! From text to a syntax tree: tokens, literals, pipelines, control structures.

pub(crate) mod ast;
pub(crate) mod lex;
mod literal;
pub(crate) mod parse;
mod pipeline;

pub(crate) use literal::integer;
