//! Istio's annotations and labels: one table of keys, syntax, defaults and effects, and the documentation
//! generated from it.

mod docs;
mod table;

pub use docs::markdown;
pub use table::{KeyKind, Row, Syntax, TABLE, keys, row};

/// A value as a message shows it: quoted, and cut where it is long.
#[must_use]
pub fn shown(text: &str) -> String {
    const LONGEST: usize = 120;
    let cut: String = text.chars().take(LONGEST).collect();
    if cut.len() < text.len() { format!("{cut:?}...") } else { format!("{cut:?}") }
}
