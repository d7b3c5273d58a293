//! Errors of templates, with their position.

/// A template that cannot be parsed or rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The template's name, or that of the `define` inside it.
    pub template: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The expression at fault; empty when it could not be parsed.
    pub expression: String,
    /// The problem, in Go's words if Go has an error for it.
    pub message: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "template {} line {} column {}: ", self.template, self.line, self.column)?;
        if !self.expression.is_empty() {
            write!(f, "at {{{{ {} }}}}: ", self.expression)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Line and column of byte `at`, both from 1.
pub(crate) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..crate::value::text::floor_char(text, at)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
