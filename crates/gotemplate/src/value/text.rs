//! Strings with the origin of their parts.
//!
//! A value from an annotation, a label or a name is *tainted*: whatever prints it marks the bytes that it
//! wrote, so that the caller can check that they stay within one YAML scalar.

use std::borrow::Borrow;
use std::rc::Rc;

/// How deep values may nest; printing and comparing go no deeper, so that no value exhausts the stack.
pub(crate) const MAX_NESTING: usize = 128;

/// Where a piece of text came from: `annotation` and its key, `label` and its key, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// What sort of place: the word of a [`Field`](super::Field)'s origin, such as `annotation`.
    pub kind: &'static str,
    /// Which one of that sort: the annotation's key, the struct field's JSON key.
    pub key: &'a str,
}

/// A range of bytes and the origin of what is printed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Where the bytes came from.
    pub origin: Origin<'a>,
}

#[derive(Clone, Debug)]
enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

#[derive(Clone, Debug)]
enum Taint<'a> {
    Clean,
    Whole(Origin<'a>),
    Parts(Rc<[Span<'a>]>),
}

/// A string value: borrowed or shared, with the origins of its parts.
#[derive(Clone, Debug)]
pub struct Str<'a> {
    text: Text<'a>,
    taint: Taint<'a>,
}

impl<'a> Str<'a> {
    /// A string that borrows its text and has no origin.
    #[must_use]
    pub fn borrowed(text: &'a str) -> Self {
        Self { text: Text::Borrowed(text), taint: Taint::Clean }
    }

    /// The text, all of it from `origin`; `None` leaves it as it is.
    #[must_use]
    pub fn tainted(self, origin: Option<Origin<'a>>) -> Self {
        match origin {
            Some(origin) => Self { text: self.text, taint: Taint::Whole(origin) },
            None => self,
        }
    }

    /// A text made out of others: all of it carries every origin they have.
    #[must_use]
    pub fn derived(text: impl Into<Rc<str>>, sources: &[&Self]) -> Self {
        let text = text.into();
        let mut spans: Vec<Span<'a>> = Vec::new();
        for origin in sources.iter().flat_map(|s| s.origins()) {
            if !spans.iter().any(|s| s.origin == origin) {
                spans.push(Span { start: 0, end: text.len(), origin });
            }
        }
        let taint = match spans.as_slice() {
            [] => Taint::Clean,
            [one] => Taint::Whole(one.origin),
            _ => Taint::Parts(spans.into()),
        };
        Self { text: Text::Shared(text), taint }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.text {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }

    /// The bytes with an origin.
    #[must_use]
    pub fn spans(&self) -> Vec<Span<'a>> {
        match &self.taint {
            Taint::Clean => Vec::new(),
            Taint::Whole(origin) => vec![Span { start: 0, end: self.as_str().len(), origin: *origin }],
            Taint::Parts(parts) => parts.to_vec(),
        }
    }

    /// Every origin in it, in order of appearance, possibly more than once.
    pub fn origins(&self) -> impl Iterator<Item = Origin<'a>> {
        let (whole, parts) = match &self.taint {
            Taint::Clean => (None, &[][..]),
            Taint::Whole(origin) => (Some(*origin), &[][..]),
            Taint::Parts(parts) => (None, &parts[..]),
        };
        whole.into_iter().chain(parts.iter().map(|span| span.origin))
    }

    /// The part from byte `start` to byte `end`, cut back to whole characters and to the text's length.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let whole = self.as_str();
        let end = floor_char(whole, end);
        let start = floor_char(whole, start).min(end);
        let text = match &self.text {
            Text::Borrowed(text) => Text::Borrowed(text.get(start..end).unwrap_or_default()),
            Text::Shared(text) if start == 0 && end == text.len() => Text::Shared(Rc::clone(text)),
            Text::Shared(text) => Text::Shared(text.get(start..end).unwrap_or_default().into()),
        };
        let taint = match &self.taint {
            Taint::Parts(parts) => Taint::Parts(
                parts
                    .iter()
                    .filter(|s| s.start < end && s.end > start)
                    .map(|s| Span {
                        start: s.start.max(start) - start,
                        end: s.end.min(end) - start,
                        origin: s.origin,
                    })
                    .collect(),
            ),
            plain @ (Taint::Clean | Taint::Whole(_)) => plain.clone(),
        };
        Self { text, taint }
    }

    /// The part that `part`, a sub-slice of [`as_str`](Self::as_str), covers.
    #[must_use]
    pub fn part(&self, part: &str) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(self.as_str().as_ptr() as usize);
        self.slice(start, start + part.len())
    }
}

/// The largest character boundary of `text` that is not beyond `at`.
pub(crate) fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl From<String> for Str<'_> {
    fn from(text: String) -> Self {
        Self { text: Text::Shared(text.into()), taint: Taint::Clean }
    }
}

impl<'a> From<&'a str> for Str<'a> {
    fn from(text: &'a str) -> Self {
        Self::borrowed(text)
    }
}

impl PartialEq for Str<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Str<'_> {}

impl PartialOrd for Str<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Borrow<str> for Str<'_> {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// Why a text cannot be written: it would be longer than it may be.
pub(crate) fn too_long(limit: usize) -> String {
    format!("the text is longer than the limit of {limit} bytes")
}

/// Why a text cannot be written: a value is nested deeper than any may be printed.
pub(crate) fn too_deep() -> String {
    format!("the value is nested more than {MAX_NESTING} deep")
}

/// Puts a text together from pieces and keeps their origins. It never grows beyond its limit.
#[derive(Clone, Debug)]
pub struct TextBuilder<'a> {
    text: String,
    spans: Vec<Span<'a>>,
    limit: usize,
}

impl<'a> TextBuilder<'a> {
    /// An empty text of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        // Most texts have some bytes at least.
        Self { text: String::with_capacity(limit.min(64)), spans: Vec::new(), limit }
    }

    /// Appends text that has no origin.
    pub fn plain(&mut self, piece: &str) -> Result<(), String> {
        if self.text.len() + piece.len() > self.limit {
            return Err(too_long(self.limit));
        }
        self.text.push_str(piece);
        Ok(())
    }

    /// Appends a string with its origins.
    pub fn push(&mut self, piece: &Str<'a>) -> Result<(), String> {
        let at = self.text.len();
        self.plain(piece.as_str())?;
        match &piece.taint {
            Taint::Clean => {}
            Taint::Whole(origin) => self.mark(at, *origin),
            Taint::Parts(parts) => self.spans.extend(parts.iter().map(|s| Span {
                start: s.start + at,
                end: s.end + at,
                origin: s.origin,
            })),
        }
        Ok(())
    }

    /// Appends `piece`, made out of `source`: all of it carries all of the source's origins.
    pub fn derived(&mut self, piece: &str, source: &Str<'a>) -> Result<(), String> {
        let at = self.text.len();
        self.plain(piece)?;
        for origin in source.origins() {
            self.mark(at, origin);
        }
        Ok(())
    }

    fn mark(&mut self, start: usize, origin: Origin<'a>) {
        let end = self.text.len();
        if start < end {
            self.spans.push(Span { start, end, origin });
        }
    }

    /// The number of bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The number of bytes that may still be written.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.text.len())
    }

    /// The text written so far.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The finished string.
    #[must_use]
    pub fn finish(self) -> Str<'a> {
        let taint = match self.spans.as_slice() {
            [] => Taint::Clean,
            [one] if one.start == 0 && one.end == self.text.len() => Taint::Whole(one.origin),
            _ => Taint::Parts(self.spans.into()),
        };
        Str { text: Text::Shared(self.text.into()), taint }
    }

    /// The finished text and its spans.
    #[must_use]
    pub fn into_parts(self) -> (String, Vec<Span<'a>>) {
        (self.text, self.spans)
    }
}
