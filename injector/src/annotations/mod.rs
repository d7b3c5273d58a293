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

/// Whether a key is one that people write instead of [`keys::INJECT`]. Annotations that are almost known ones
/// are reported as such.
pub(crate) fn is_instead_of_inject(what: &str, key: &str) -> bool {
    const KEYS: [&str; 2] = ["istio.io/inject", "sidecar.istio.io.inject"];
    let is_case = key != keys::INJECT && key.eq_ignore_ascii_case(keys::INJECT);
    KEYS.contains(&key) || what == "label" && is_case
}
