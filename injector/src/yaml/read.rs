//! Turns the parser's events into JSON.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::block;
use super::scalar::{self, key_text, plain};
use super::{MAX_BYTES, MAX_DEPTH, MAX_NODES, Problem, YamlError};

/// Reads one document; an empty text is `null`.
///
/// # Errors
/// Bad YAML, more than one document, or a text beyond the bounds.
pub fn read(text: &str) -> Result<Value, YamlError> {
    read_at_most(MAX_NODES, text)
}

/// [`read`], for a document of at most so many nodes once its aliases are expanded.
///
/// # Errors
/// As [`read`].
pub fn read_at_most(nodes: usize, text: &str) -> Result<Value, YamlError> {
    let mut value = raw_at_most(nodes, text)?.value;
    integers(&mut value);
    Ok(value)
}

/// The first duplicate key of one document; `None` for a text that cannot be read.
#[must_use]
pub fn duplicate_key(text: &str) -> Option<YamlError> {
    read_raw(text).ok()?.duplicate
}

/// One document as it was read.
pub(super) struct Raw {
    /// The value of the document, with floats as floats even if they are integral.
    pub(super) value: Value,
    /// Where its scalars are.
    pub(super) spans: Vec<Range<usize>>,
    /// The first key that its map has already.
    pub(super) duplicate: Option<YamlError>,
}

/// Reads one document.
pub(super) fn read_raw(text: &str) -> Result<Raw, YamlError> {
    raw_at_most(MAX_NODES, text)
}

fn raw_at_most(most: usize, text: &str) -> Result<Raw, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::whole(Problem::TooLong(text.len())));
    }
    // Every node takes at least one byte.
    if text.len() <= most
        && let Some((value, spans)) = block::read(text, false)
    {
        return Ok(Raw { value, spans, duplicate: None });
    }
    parse(most, text)
}

/// Reads any YAML.
pub(super) fn parse(most: usize, text: &str) -> Result<Raw, YamlError> {
    whole_document(Reader::new(most, text))
}

/// The document in which the value of each plain scalar is its text; `None` for a text that cannot be read.
pub(super) fn as_written(text: &str) -> Option<Value> {
    block::read(text, true).map(|(value, _)| value).or_else(|| parse_as_written(text))
}

/// As [`as_written`], of any YAML.
pub(super) fn parse_as_written(text: &str) -> Option<Value> {
    let reader = Reader { as_written: true, ..Reader::new(MAX_NODES, text) };
    Some(whole_document(reader).ok()?.value)
}

fn whole_document(mut reader: Reader<'_>) -> Result<Raw, YamlError> {
    let value = reader.document()?.unwrap_or_default();
    // Go stops reading here. A separator with nothing behind it is common; what is behind it must not get
    // lost.
    while let Some(extra) = reader.document()? {
        if !extra.is_null() {
            return Err(reader.error(Problem::ManyDocuments));
        }
    }
    Ok(Raw { value, spans: reader.spans, duplicate: reader.duplicate })
}

/// Writes integral floats as the integers that they are in JSON.
pub(super) fn integers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(integer) = number.as_f64().and_then(scalar::integral) {
                *number = integer;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integers),
        Value::Object(fields) => fields.values_mut().for_each(integers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The parser as the readers here want it: no comments.
fn parser(text: &str) -> Parser<'_, StrInput<'_>> {
    Parser::new_from_str_with_options(text, granit_parser::options! { emit_comments: false })
}

impl From<ScanError> for YamlError {
    fn from(error: ScanError) -> Self {
        let marker = error.marker();
        Self { line: marker.line(), column: marker.col() + 1, problem: Problem::Syntax(error.info()) }
    }
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, (Value, usize)>,
    spans: Vec<Range<usize>>,
    duplicate: Option<YamlError>,
    nodes: usize,
    most: usize,
    at: (usize, usize),
    /// Whether plain scalars are read as texts, except in keys.
    as_written: bool,
}

impl<'t> Reader<'t> {
    fn new(most: usize, text: &'t str) -> Self {
        Self {
            parser: parser(text),
            anchors: HashMap::new(),
            spans: Vec::new(),
            duplicate: None,
            nodes: 0,
            most,
            at: (0, 0),
            as_written: false,
        }
    }

    fn error(&self, problem: Problem) -> YamlError {
        YamlError { line: self.at.0, column: self.at.1, problem }
    }

    fn next(&mut self) -> Result<Event<'t>, YamlError> {
        match self.parser.next_event() {
            Some(next) => {
                let (event, span): (Event<'t>, Span) = next?;
                self.at = (span.start.line(), span.start.col() + 1);
                self.spans.extend(scalar_span(&event, &span));
                Ok(event)
            }
            None => Ok(Event::StreamEnd),
        }
    }

    /// Counts nodes, which bounds memory.
    fn spend(&mut self, nodes: usize) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.most { Err(self.error(Problem::TooManyNodes(self.most))) } else { Ok(()) }
    }

    /// The next document; `None` at the end of the stream.
    fn document(&mut self) -> Result<Option<Value>, YamlError> {
        loop {
            match self.next()? {
                Event::StreamEnd => return Ok(None),
                Event::DocumentStart(..) => {
                    self.anchors.clear();
                    let first = self.next()?;
                    return self.node(first, 0).map(Some);
                }
                _ => {}
            }
        }
    }

    fn node(&mut self, event: Event<'t>, depth: usize) -> Result<Value, YamlError> {
        let before = self.nodes;
        self.spend(1)?;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                // Long texts count as several nodes, since aliases repeat them as well.
                self.spend(text.len() / 256)?;
                (self.scalar(text, style, tag.as_deref())?, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.sequence(depth)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.mapping(depth)?, anchor),
            Event::Alias(id) => {
                let Some((value, nodes)) = self.anchors.get(&id) else {
                    return Err(self.error(Problem::Syntax("an anchor's value contains itself".to_owned())));
                };
                let (value, nodes) = (value.clone(), *nodes);
                self.spend(nodes)?;
                (value, 0)
            }
            Event::DocumentEnd | Event::StreamEnd => (Value::Null, 0),
            other => return Err(self.error(Problem::Syntax(format!("unexpected {other:?}")))),
        };
        if anchor != 0 {
            let nodes = self.nodes - before;
            self.spend(nodes)?;
            self.anchors.insert(anchor, (value.clone(), nodes));
        }
        Ok(value)
    }

    fn check_depth(&self, depth: usize) -> Result<(), YamlError> {
        if depth >= MAX_DEPTH { Err(self.error(Problem::TooDeep)) } else { Ok(()) }
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, YamlError> {
        self.check_depth(depth)?;
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Value::Array(items)),
                event => items.push(self.node(event, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, YamlError> {
        self.check_depth(depth)?;
        let mut fields = Map::new();
        // Keys of `<<` may be overwritten.
        let mut merged = HashSet::new();
        loop {
            match self.next()? {
                Event::MappingEnd => return Ok(Value::Object(fields)),
                Event::Scalar(text, ScalarStyle::Plain, _, tag)
                    if text == "<<" && is_merge(tag.as_deref()) =>
                {
                    let event = self.next()?;
                    let value = self.node(event, depth + 1)?;
                    let before = fields.len();
                    self.merge(&mut fields, value)?;
                    merged.extend(fields.keys().skip(before).cloned());
                }
                event => {
                    let as_written = std::mem::take(&mut self.as_written);
                    let key = self.node(event, depth + 1);
                    self.as_written = as_written;
                    let key = key?;
                    let key = key_text(key).ok_or_else(|| self.error(Problem::Key))?;
                    if self.duplicate.is_none() && fields.contains_key(&key) && !merged.remove(&key) {
                        self.duplicate = Some(self.error(Problem::DuplicateKey(key.clone())));
                    }
                    let event = self.next()?;
                    let value = self.node(event, depth + 1)?;
                    fields.insert(key, value);
                }
            }
        }
    }

    /// `<<`: later keys overwrite it and it overwrites earlier ones, as in Go; of a list's maps the first
    /// wins.
    fn merge(&mut self, fields: &mut Map<String, Value>, value: Value) -> Result<(), YamlError> {
        match value {
            Value::Object(more) => {
                for (key, value) in more {
                    fields.insert(key, value);
                }
                Ok(())
            }
            Value::Array(items) => items.into_iter().rev().try_for_each(|item| match item {
                Value::Object(_) => self.merge(fields, item),
                _ => Err(self.error(Problem::Merge)),
            }),
            _ => Err(self.error(Problem::Merge)),
        }
    }

    fn scalar(&self, text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, YamlError> {
        let tag = match tag {
            None if style == ScalarStyle::Plain && !self.as_written => return self.plain(text),
            None => return Ok(Value::String(text.into_owned())),
            Some(tag) => tag,
        };
        let bad_tag =
            |text: &str| self.error(Problem::BadTag { tag: tag.original(), value: text.to_owned() });
        if is_yaml_tag(tag, "binary") {
            return scalar::binary(&text).map(Value::String).ok_or_else(|| bad_tag(&text));
        }
        let fits: fn(&Value) -> bool = match tag.core_suffix() {
            Some("null") => Value::is_null,
            Some("bool") => Value::is_boolean,
            Some("int") => |value| value.is_i64() || value.is_u64(),
            Some("float") => Value::is_number,
            _ => return Ok(Value::String(text.into_owned())),
        };
        let resolved = self.plain(Cow::Borrowed(&text))?;
        if fits(&resolved) { Ok(resolved) } else { Err(bad_tag(&text)) }
    }

    fn plain(&self, text: Cow<'_, str>) -> Result<Value, YamlError> {
        plain(&text).ok_or_else(|| self.error(Problem::NotFinite(text.into_owned())))
    }
}

/// Where a scalar is; `None` for everything else, and for a scalar that has no characters.
fn scalar_span(event: &Event<'_>, span: &Span) -> Option<Range<usize>> {
    match event {
        Event::Scalar(..) => span.byte_range().filter(|range| !range.is_empty()),
        _ => None,
    }
}

fn is_merge(tag: Option<&Tag>) -> bool {
    tag.is_none_or(|tag| is_yaml_tag(tag, "merge"))
}

/// Whether it is `!!NAME`, of the types that YAML 1.1 has and the core schema of YAML 1.2 has not.
fn is_yaml_tag(tag: &Tag, name: &str) -> bool {
    tag.suffix_in_namespace("tag:yaml.org,2002:").is_some_and(|suffix| suffix == name)
}

/// The byte ranges of all scalars of `text`, keys included, in order; quotes and block headers belong to
/// them, empty scalars are left out.
///
/// Comments, anchors, tags, aliases and punctuation lie in no scalar.
///
/// # Errors
/// Bad YAML, with line and column.
pub fn scalar_spans(text: &str) -> Result<Vec<Range<usize>>, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::whole(Problem::TooLong(text.len())));
    }
    let mut spans = Vec::new();
    for next in parser(text) {
        let (event, span) = next?;
        spans.extend(scalar_span(&event, &span));
    }
    Ok(spans)
}

/// Whether `range` lies within exactly one of `spans`, which are those of [`scalar_spans`]. An empty range
/// always does: nothing was printed there.
#[must_use]
pub fn within_one_scalar(spans: &[Range<usize>], range: &Range<usize>) -> bool {
    if range.is_empty() {
        return true;
    }
    let after = spans.partition_point(|span| span.start <= range.start);
    after.checked_sub(1).and_then(|at| spans.get(at)).is_some_and(|span| range.end <= span.end)
}
