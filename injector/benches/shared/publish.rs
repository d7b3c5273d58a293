//! Figures in a document, between marks.

use std::path::Path;

/// Puts the figures between the two marks of the document.
pub(crate) fn publish(path: &Path, [begin, end]: &[&str; 2], figures: &str) -> Result<(), String> {
    let bad = |problem: &str| format!("{}: {problem}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| bad(&error.to_string()))?;
    let (before, rest) = text.split_once(begin).ok_or_else(|| bad("no place for the figures"))?;
    let (_, after) = rest.split_once(end).ok_or_else(|| bad("no end of the figures"))?;
    std::fs::write(path, format!("{before}{begin}\n\n{figures}\n{end}{after}"))
        .map_err(|error| bad(&error.to_string()))
}
