//! Elements and text of a page. All text is escaped here; the result is both HTML and well-formed XML.

use crate::text::one_line;

/// An attribute.
pub(super) type Attribute<'a> = (&'a str, &'a str);

/// A page that is being written.
#[derive(Debug, Default)]
pub(super) struct Markup {
    text: String,
}

impl Markup {
    /// An element with what `content` writes into it.
    pub(super) fn element(
        &mut self,
        name: &str,
        attributes: &[Attribute<'_>],
        content: impl FnOnce(&mut Self),
    ) {
        self.open(name, attributes);
        self.text.push('>');
        content(self);
        self.text.extend(["</", name, ">"]);
    }

    /// An element with a text.
    pub(super) fn leaf(&mut self, name: &str, attributes: &[Attribute<'_>], text: &str) {
        self.element(name, attributes, |page| page.text(text));
    }

    /// An element that has no content.
    pub(super) fn void(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        self.open(name, attributes);
        self.text.push_str("/>");
    }

    fn open(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        self.text.extend(["<", name]);
        for (name, value) in attributes.iter().filter(|(_, value)| !value.is_empty()) {
            self.text.extend([" ", name, "=\""]);
            self.text(value);
            self.text.push('"');
        }
    }

    /// Text, also of foreign origin.
    pub(super) fn text(&mut self, text: &str) {
        for c in one_line(text).chars() {
            match c {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' => self.text.push_str("&quot;"),
                '\'' => self.text.push_str("&#39;"),
                // No characters of XML.
                '\u{fffe}' | '\u{ffff}' => self.text.push('\u{fffd}'),
                c => self.text.push(c),
            }
        }
    }

    /// A sentence of a report, with what is between backticks as code.
    pub(super) fn sentence(&mut self, sentence: &str) {
        let is_paired = sentence.matches('`').count().is_multiple_of(2);
        if !is_paired {
            return self.text(sentence);
        }
        for (number, part) in sentence.split('`').enumerate() {
            if number.is_multiple_of(2) {
                self.text(part);
            } else {
                self.leaf("code", &[], part);
            }
        }
    }

    /// A line feed between elements.
    pub(super) fn line(&mut self) {
        self.text.push('\n');
    }

    /// The contents of a file of this program. Nothing in it is escaped.
    pub(super) fn own(&mut self, text: &'static str) {
        self.text.push_str(text);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
