//! Messages to the kernel.

use std::io;

use nix::errno::Errno;

use crate::{ATTRIBUTE_HEADER, HEADER, aligned};

/// Marks an attribute that holds attributes.
const NLA_F_NESTED: u16 = 1 << 15;

/// A message to the kernel: its type, its flags, and its body, which is a fixed header followed by
/// attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
    /// An attribute did not fit the 16 bits of its length: sending fails.
    too_long: bool,
}

/// An attribute that is open for attributes within it; from [`Message::begin`], to be given to
/// [`Message::end`].
#[derive(Debug)]
#[must_use = "an attribute that is not ended has no length"]
pub struct OpenAttribute(usize);

impl Message {
    /// A message of type `kind` with the fixed header of that type. `flags` come on top of what sending sets
    /// (`NLM_F_REQUEST` and the like).
    #[must_use]
    pub fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut message = Self { kind, flags, body: Vec::with_capacity(128), too_long: false };
        message.push_padded(header);
        message
    }

    /// The message with one more attribute.
    #[must_use]
    pub fn with(mut self, kind: u16, payload: &[u8]) -> Self {
        self.push(kind, payload);
        self
    }

    /// The message with one more attribute that holds a NUL-terminated string.
    #[must_use]
    pub fn with_text(mut self, kind: u16, text: &str) -> Self {
        self.push_text(kind, text);
        self
    }

    /// Appends an attribute.
    pub fn push(&mut self, kind: u16, payload: &[u8]) {
        let length = self.length_of_attribute(payload.len());
        self.body.extend_from_slice(&length.to_ne_bytes());
        self.body.extend_from_slice(&kind.to_ne_bytes());
        self.push_padded(payload);
    }

    /// Appends an attribute that holds a NUL-terminated string.
    pub fn push_text(&mut self, kind: u16, text: &str) {
        let length = self.length_of_attribute(text.len() + 1);
        self.body.extend_from_slice(&length.to_ne_bytes());
        self.body.extend_from_slice(&kind.to_ne_bytes());
        self.body.extend_from_slice(text.as_bytes());
        self.body.push(0);
        self.pad();
    }

    /// Appends a number in network byte order, as netfilter wants it.
    pub fn push_be32(&mut self, kind: u16, number: u32) {
        self.push(kind, &number.to_be_bytes());
    }

    /// Appends attributes that were read from a message of the kernel.
    pub fn push_raw(&mut self, attributes: &[u8]) {
        self.push_padded(attributes);
    }

    /// Opens an attribute that holds attributes; what is pushed from now on is within it.
    pub fn begin(&mut self, kind: u16) -> OpenAttribute {
        let start = self.body.len();
        self.body.extend_from_slice(&[0, 0]);
        self.body.extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        OpenAttribute(start)
    }

    /// Closes an attribute that [`Self::begin`] opened; inner ones first.
    #[allow(clippy::needless_pass_by_value, reason = "taken by value so that it cannot be ended twice")]
    pub fn end(&mut self, nest: OpenAttribute) {
        let payload = self.body.len().saturating_sub(nest.0 + ATTRIBUTE_HEADER);
        let length = self.length_of_attribute(payload);
        if let Some(bytes) = self.body.get_mut(nest.0..nest.0 + 2) {
            bytes.copy_from_slice(&length.to_ne_bytes());
        }
    }

    /// Appends an attribute whose content `fill` pushes.
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let nest = self.begin(kind);
        fill(self);
        self.end(nest);
    }

    /// Number of bytes, without netlink's own header.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len()
    }

    /// Fixed header and attributes, as they are sent.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The content of the attribute that begins at `offset`, counted from the start of netlink's own header.
    pub(crate) fn attribute_at(&self, offset: usize) -> Option<&[u8]> {
        let attribute = self.body.get(offset.checked_sub(HEADER)?..)?;
        let [low, high, ..] = *attribute.first_chunk::<ATTRIBUTE_HEADER>()?;
        attribute.get(ATTRIBUTE_HEADER..usize::from(u16::from_ne_bytes([low, high])))
    }

    /// Appends the whole message to `bytes`.
    pub(super) fn write(&self, bytes: &mut Vec<u8>, flags: u16, sequence: u32) -> io::Result<()> {
        let length = u32::try_from(HEADER + self.body.len()).map_err(|_| Errno::EMSGSIZE)?;
        if self.too_long {
            let text = "a netlink attribute is limited to 65535 bytes; what it should hold has to be split";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&(self.flags | flags).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.body);
        Ok(())
    }

    fn length_of_attribute(&mut self, payload: usize) -> u16 {
        u16::try_from(payload.saturating_add(ATTRIBUTE_HEADER)).unwrap_or_else(|_| {
            self.too_long = true;
            u16::MAX
        })
    }

    fn push_padded(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.body.resize(aligned(self.body.len()), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_beyond_16_bits_is_refused() {
        let message = Message::new(20, 0, &[]).with(1, &[0; 65_532]);
        let error = message.write(&mut Vec::new(), 0, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(Message::new(20, 0, &[]).with(1, &[0; 65_531]).write(&mut Vec::new(), 0, 0).is_ok());
    }
}
