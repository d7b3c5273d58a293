//! The bytes of netlink: messages with attributes, made and read.

use std::io;

use nix::errno::Errno;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct nlattr`.
const ATTRIBUTE_HEADER: usize = 4;
/// Marks an attribute that holds attributes.
const NLA_F_NESTED: u16 = 1 << 15;
/// The bits of an attribute's type that are its type.
const NLA_TYPE_MASK: u16 = 0x3fff;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// First type that is not one of netlink's own.
const NLMSG_MIN_TYPE: u16 = 16;
/// The dump is not consistent: the list changed while it was read.
const NLM_F_DUMP_INTR: u16 = 0x10;

/// `length` rounded up to the four bytes on which netlink aligns everything.
#[must_use]
pub const fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// A message to the kernel: its type, its flags, and its body, which is a fixed header followed by attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
    /// An attribute did not fit the 16 bits of its length: sending fails.
    too_long: bool,
}

/// An attribute that is open for attributes within it; from [`Message::begin`], to be given to [`Message::end`].
#[derive(Debug)]
#[must_use = "an attribute that is not ended has no length"]
pub struct Nest(usize);

impl Message {
    /// A message of type `kind` with the fixed header of that type. `flags` come on top of what sending sets
    /// (`NLM_F_REQUEST` and the like).
    #[must_use]
    pub fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut message = Self {
            kind,
            flags,
            body: Vec::with_capacity(128),
            too_long: false,
        };
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

    /// Opens an attribute that holds attributes; what is pushed from now on is within it.
    pub fn begin(&mut self, kind: u16) -> Nest {
        let start = self.body.len();
        self.body.extend_from_slice(&[0, 0]);
        self.body.extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        Nest(start)
    }

    /// Closes an attribute that [`Self::begin`] opened; inner ones first.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "taken by value so that it cannot be ended twice"
    )]
    pub fn end(&mut self, nest: Nest) {
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

/// One message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Its type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// The number of the request it answers.
    pub sequence: u32,
    /// Fixed header and attributes.
    pub body: &'a [u8],
}

impl<'a> Reply<'a> {
    /// The attributes behind a fixed header of `header` bytes.
    #[must_use]
    pub fn attributes(&self, header: usize) -> Attributes<'a> {
        Attributes::new(self.body.get(aligned(header)..).unwrap_or_default())
    }

    /// The byte at `offset`, 0 if there is none.
    #[must_use]
    pub fn byte(&self, offset: usize) -> u8 {
        self.body.get(offset).copied().unwrap_or(0)
    }

    /// The number in host byte order at `offset`, 0 if there is none.
    #[must_use]
    pub fn word(&self, offset: usize) -> u32 {
        self.body
            .get(offset..)
            .and_then(<[u8]>::first_chunk)
            .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    pub(super) const fn interrupted(&self) -> bool {
        self.flags & NLM_F_DUMP_INTR != 0
    }
}

/// The messages in a datagram; ends at the first that is not whole.
pub(super) fn replies(mut datagram: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    std::iter::from_fn(move || {
        let header: &[u8; HEADER] = datagram.first_chunk()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let length = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).ok()?;
        let body = datagram.get(HEADER..length)?;
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
        Some(Reply {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            body,
        })
    })
}

/// What a message says about the end of a request: done, refused, or (`None`) nothing, because it carries data.
pub(super) fn status(reply: &Reply<'_>) -> Option<Result<(), Errno>> {
    match reply.kind {
        NLMSG_ERROR | NLMSG_DONE => {
            let code = i32::from_ne_bytes(reply.word(0).to_ne_bytes());
            Some(if code < 0 {
                Err(Errno::from_raw(code.wrapping_neg()))
            } else {
                Ok(())
            })
        }
        NLMSG_MIN_TYPE.. => None,
        // No-operation and overrun: nothing the kernel sends today.
        _ => None,
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its type, without the flags for nesting and byte order.
    pub kind: u16,
    /// Its content, which may be attributes again.
    pub payload: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The content as a byte.
    #[must_use]
    pub fn byte(&self) -> Option<u8> {
        self.payload.first().copied()
    }

    /// The content as a number in host byte order.
    #[must_use]
    pub fn u32(&self) -> Option<u32> {
        self.payload.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// The content as a number in network byte order.
    #[must_use]
    pub fn be32(&self) -> Option<u32> {
        self.payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// The content as text, up to a NUL if there is one. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        let end = self
            .payload
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.payload.len());
        String::from_utf8_lossy(self.payload.get(..end).unwrap_or_default()).into_owned()
    }

    /// The attributes within it.
    #[must_use]
    pub const fn nested(&self) -> Attributes<'a> {
        Attributes::new(self.payload)
    }
}

/// Attributes in the order in which they stand; ends at the first that is not whole.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The attributes in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The first attribute of this type.
    #[must_use]
    pub fn of(mut self, kind: u16) -> Option<Attribute<'a>> {
        self.find(|attribute| attribute.kind == kind)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let [l0, l1, k0, k1] = *self.rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let payload = self.rest.get(ATTRIBUTE_HEADER..length)?;
        self.rest = self.rest.get(aligned(length)..).unwrap_or_default();
        Some(Attribute {
            kind: u16::from_ne_bytes([k0, k1]) & NLA_TYPE_MASK,
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.write(&mut bytes, 1, 42).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut message = Message::new(20, 0x400, &[2, 0, 0, 0, 7])
            .with(1, &[9])
            .with_text(3, "lo");
        message.nested(4, |inner| inner.push_be32(5, 1337));
        let bytes = bytes_of(&message);
        let reply = replies(&bytes).next().unwrap();
        assert_eq!((reply.kind, reply.flags, reply.sequence), (20, 0x401, 42));
        let attributes: Vec<_> = reply.attributes(5).collect();
        assert_eq!(attributes.len(), 3);
        assert_eq!(
            attributes[0],
            Attribute {
                kind: 1,
                payload: &[9]
            }
        );
        assert_eq!(attributes[1].text(), "lo");
        assert_eq!(attributes[2].nested().of(5).unwrap().be32(), Some(1337));
    }

    #[test]
    fn an_attribute_beyond_16_bits_is_refused() {
        let message = Message::new(20, 0, &[]).with(1, &[0; 65_532]);
        let error = message.write(&mut Vec::new(), 0, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(
            Message::new(20, 0, &[])
                .with(1, &[0; 65_531])
                .write(&mut Vec::new(), 0, 0)
                .is_ok()
        );
    }

    #[test]
    fn an_error_is_an_errno_and_zero_an_acknowledgement() {
        let of = |kind, code: i32| {
            status(&Reply {
                kind,
                flags: 0,
                sequence: 1,
                body: &code.to_ne_bytes(),
            })
        };
        assert_eq!(of(NLMSG_ERROR, -libc::EPERM), Some(Err(Errno::EPERM)));
        assert_eq!(of(NLMSG_ERROR, 0), Some(Ok(())));
        assert_eq!(of(NLMSG_DONE, 0), Some(Ok(())));
        assert_eq!(of(20, 0), None);
        assert!(matches!(of(NLMSG_ERROR, i32::MIN), Some(Err(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_panic_or_hang(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut count = 0;
            for reply in replies(&bytes) {
                count += 1;
                let _ = status(&reply);
                for attribute in reply.attributes(12) {
                    let _ = (attribute.text(), attribute.u32(), attribute.be32(), attribute.nested().count());
                }
            }
            prop_assert!(count <= bytes.len() / HEADER);
        }

        #[test]
        fn a_message_cut_short_is_not_seen(cut in 0_usize..60) {
            let whole = bytes_of(&Message::new(20, 0, &[0; 8]).with(1, &[1; 30]));
            prop_assert_eq!(whole.len(), 60);
            prop_assert_eq!(replies(whole.get(..cut).unwrap()).count(), 0);
        }
    }
}
