//! `printf`: Go's formatting verbs.

use crate::builtin::print::{escape, print_value};
use crate::value::text::{Str, TextBuilder, too_deep, too_long};
use crate::value::{MAX_NESTING, Value};

pub(crate) type Done = Result<(), String>;

/// Widths and precisions beyond this are errors in Go too.
const MAX_WIDTH: usize = 1_000_000;

/// Flags, width and precision of one directive.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spec {
    pub(crate) plus: bool,
    pub(crate) minus: bool,
    pub(crate) sharp: bool,
    pub(crate) blank: bool,
    pub(crate) zero: bool,
    pub(crate) width: Option<usize>,
    pub(crate) precision: Option<usize>,
}

pub(crate) struct Printer<'p, 'a> {
    pub(crate) out: &'p mut TextBuilder<'a>,
    args: &'p [Value<'a>],
    next: usize,
    /// An explicit index `[n]` was used: unused arguments are not errors then.
    reordered: bool,
    bad_index: bool,
    depth: usize,
}

/// Writes `format` with `args` filled in.
pub(crate) fn sprintf<'a>(out: &mut TextBuilder<'a>, format: &Str<'a>, args: &[Value<'a>]) -> Done {
    let mut printer = Printer { out, args, next: 0, reordered: false, bad_index: false, depth: 0 };
    let mut rest = format.as_str();
    while let Some(at) = rest.find('%') {
        let (before, directive) = rest.split_at(at);
        printer.out.push(&format.part(before))?;
        rest = printer.directive(directive.get(1..).unwrap_or_default())?;
    }
    printer.out.push(&format.part(rest))?;
    printer.extra()
}

impl<'a> Printer<'_, 'a> {
    /// One directive, `%` already gone; returns what follows it.
    fn directive<'t>(&mut self, text: &'t str) -> Result<&'t str, String> {
        let mut spec = Spec::default();
        self.bad_index = false;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            match c {
                '+' => spec.plus = true,
                '-' => {
                    spec.minus = true;
                    spec.zero = false;
                }
                '#' => spec.sharp = true,
                ' ' => spec.blank = true,
                '0' => spec.zero = !spec.minus,
                _ => break,
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        rest = self.index(rest);
        let (size, after) = self.size(rest, "%!(BADWIDTH)")?;
        spec.width = size.map(|n| n.unsigned_abs().min(MAX_WIDTH));
        if size.is_some_and(|n| n < 0) {
            spec.minus = true;
            spec.zero = false;
        }
        rest = after;
        if let Some(after) = rest.strip_prefix('.') {
            rest = self.index(after);
            let (size, after) = self.size(rest, "%!(BADPREC)")?;
            spec.precision = Some(size.map_or(0, |n| usize::try_from(n).unwrap_or_default().min(MAX_WIDTH)));
            rest = after;
        }
        rest = self.index(rest);
        let Some(verb) = rest.chars().next() else {
            self.out.plain("%!(NOVERB)")?;
            return Ok("");
        };
        self.verb(verb, spec)?;
        Ok(rest.get(verb.len_utf8()..).unwrap_or_default())
    }

    /// An argument index `[n]`.
    fn index<'t>(&mut self, text: &'t str) -> &'t str {
        let Some(body) = text.strip_prefix('[') else {
            return text;
        };
        self.reordered = true;
        let Some((number, rest)) = body.split_once(']') else {
            self.bad_index = true;
            return body;
        };
        match number.parse::<usize>() {
            Ok(n) if n >= 1 && n <= self.args.len() => self.next = n - 1,
            _ => self.bad_index = true,
        }
        rest
    }

    /// A width or precision: digits, or `*` for an argument.
    fn size<'t>(&mut self, text: &'t str, bad: &str) -> Result<(Option<isize>, &'t str), String> {
        if let Some(rest) = text.strip_prefix('*') {
            let given = self.args.get(self.next);
            self.next += 1;
            let size = match given {
                Some(Value::Int(n, _)) => isize::try_from(*n).ok().filter(|n| n.unsigned_abs() <= MAX_WIDTH),
                _ => None,
            };
            if size.is_none() {
                self.out.plain(bad)?;
            }
            return Ok((size, rest));
        }
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        Ok((digits.parse().ok(), rest))
    }

    fn verb(&mut self, verb: char, spec: Spec) -> Done {
        if verb == '%' {
            return self.out.plain("%");
        }
        if self.bad_index {
            return self.out.plain(&format!("%!{verb}(BADINDEX)"));
        }
        let Some(value) = self.args.get(self.next) else {
            return self.out.plain(&format!("%!{verb}(MISSING)"));
        };
        self.next += 1;
        self.value(verb, spec, value)
    }

    fn extra(&mut self) -> Done {
        if self.reordered || self.next >= self.args.len() {
            return Ok(());
        }
        self.out.plain("%!(EXTRA ")?;
        for (i, arg) in self.args.iter().enumerate().skip(self.next) {
            if i > self.next {
                self.out.plain(", ")?;
            }
            if matches!(arg, Value::Nil | Value::Null) {
                self.out.plain("<nil>")?;
            } else {
                self.out.plain(&format!("{}=", arg.type_name()))?;
                print_value(self.out, arg, 0)?;
            }
        }
        self.out.plain(")")
    }

    fn value(&mut self, verb: char, spec: Spec, value: &Value<'a>) -> Done {
        match (verb, value) {
            ('T', _) => self.text(&Str::from(value.type_name().into_owned()), spec),
            ('v', Value::Str(s)) if !spec.sharp => self.text(s, spec),
            ('v', Value::Nil | Value::Null) => self.pad("<nil>", spec, None),
            ('t' | 'v', Value::Bool(b)) => self.pad(if *b { "true" } else { "false" }, spec, None),
            (_, Value::Int(n, _)) => self.integer(verb, spec, *n, value),
            ('v' | 's' | 'q' | 'x' | 'X', Value::Enum(ty, n)) => {
                let name = Str::from(crate::value::schema::enum_name(ty, *n).into_owned());
                self.value(if verb == 'v' { 's' } else { verb }, spec, &Value::Str(name))
            }
            (_, Value::Enum(_, n)) => self.integer(verb, spec, i64::from(*n), value),
            (_, Value::Float(n)) => self.float(verb, spec, *n, value),
            (_, Value::Str(s)) => self.string(verb, spec, s),
            (_, Value::List(list)) => {
                let items = list.to_vec();
                self.sequence("[", items.into_iter().map(|item| (None, item)), verb, spec)
            }
            (_, Value::Map(map)) => {
                let items = map.entries().into_iter().map(|(k, v)| (Some(k), v));
                self.sequence("map[", items, verb, spec)
            }
            ('v', Value::NilPtr(_))
            | ('v' | 's', Value::Struct(_) | Value::Record(_) | Value::Ptr(_))
            | ('v' | 's', Value::Duration(_) | Value::Wrapper(_)) => {
                let mut text = TextBuilder::new(self.out.remaining());
                print_value(&mut text, value, 0)?;
                self.text(&text.finish(), spec)
            }
            _ => self.bad(verb, spec, value),
        }
    }

    fn sequence(
        &mut self,
        open: &str,
        items: impl Iterator<Item = (Option<Str<'a>>, Value<'a>)>,
        verb: char,
        spec: Spec,
    ) -> Done {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(too_deep());
        }
        self.out.plain(open)?;
        for (i, (key, item)) in items.enumerate() {
            self.out.plain(if i > 0 { " " } else { "" })?;
            if let Some(key) = key {
                self.string(verb, spec, &key)?;
                self.out.plain(":")?;
            }
            match &item {
                Value::Nil | Value::Null => self.out.plain("<nil>")?,
                _ => self.value(verb, spec, &item)?,
            }
        }
        self.depth -= 1;
        self.out.plain("]")
    }

    /// A verb that does not fit: the value follows as `%v`, with the same flags.
    pub(crate) fn bad(&mut self, verb: char, spec: Spec, value: &Value<'a>) -> Done {
        if matches!(value, Value::Nil | Value::Null) {
            return self.out.plain(&format!("%!{verb}(<nil>)"));
        }
        self.out.plain(&format!("%!{verb}({}=", value.type_name()))?;
        self.value('v', Spec { sharp: false, ..spec }, value)?;
        self.out.plain(")")
    }

    /// Text of ours, padded.
    pub(crate) fn pad(&mut self, text: &str, spec: Spec, source: Option<&Str<'a>>) -> Done {
        let missing = spec.width.unwrap_or_default().saturating_sub(text.chars().count());
        if missing > self.out.remaining() {
            return Err(too_long(self.out.remaining()));
        }
        let padding = if spec.zero && !spec.minus { "0" } else { " " }.repeat(missing);
        if !spec.minus {
            self.out.plain(&padding)?;
        }
        match source {
            Some(source) => self.out.derived(text, source)?,
            None => self.out.plain(text)?,
        }
        if spec.minus { self.out.plain(&padding) } else { Ok(()) }
    }

    /// A string's text with its origins, truncated and padded.
    fn text(&mut self, s: &Str<'a>, spec: Spec) -> Done {
        let cut = match spec.precision {
            Some(p) => s.as_str().char_indices().nth(p).map_or(s.as_str().len(), |(i, _)| i),
            None => s.as_str().len(),
        };
        let s = s.slice(0, cut);
        if spec.width.is_none() { self.out.push(&s) } else { self.pad(s.as_str(), spec, Some(&s)) }
    }

    fn string(&mut self, verb: char, spec: Spec, s: &Str<'a>) -> Done {
        match verb {
            's' => self.text(s, spec),
            'v' if !spec.sharp => self.text(s, spec),
            'v' | 'q' => {
                let cut = spec.precision.and_then(|p| s.as_str().char_indices().nth(p));
                let text = s.as_str().get(..cut.map_or(s.as_str().len(), |(i, _)| i)).unwrap_or_default();
                if spec.sharp
                    && verb == 'q'
                    && !text.contains('`')
                    && text.chars().all(|c| c == '\t' || !c.is_control())
                {
                    return self.pad(&format!("`{text}`"), spec, Some(s));
                }
                if spec.width.is_none() {
                    self.out.plain("\"")?;
                    self.out.derived(&escape(text, '"', spec.plus), s)?;
                    return self.out.plain("\"");
                }
                self.pad(&format!("\"{}\"", escape(text, '"', spec.plus)), spec, Some(s))
            }
            'x' | 'X' => {
                let length = spec.precision.unwrap_or(usize::MAX);
                let hex = |b: u8| {
                    if verb == 'x' { format!("{b:02x}") } else { format!("{b:02X}") }
                };
                let between = if spec.blank { " " } else { "" };
                let bytes: Vec<String> = s.as_str().bytes().take(length).map(hex).collect();
                let prefix = if spec.sharp && !bytes.is_empty() { "0x" } else { "" };
                self.pad(&format!("{prefix}{}", bytes.join(between)), spec, Some(s))
            }
            _ => self.bad(verb, spec, &Value::Str(s.clone())),
        }
    }
}
