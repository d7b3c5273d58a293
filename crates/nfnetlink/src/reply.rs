//! Netlink replies, parsed with bounds checks only.

use nix::errno::Errno;

use crate::{ATTRIBUTE_HEADER, HEADER, aligned};

/// The bits of an attribute's type that are its type.
const NLA_TYPE_MASK: u16 = 0x3fff;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// First type that is not one of netlink's own.
const NLMSG_MIN_TYPE: u16 = 16;
/// The dump is not consistent: the list changed while it was read.
const NLM_F_DUMP_INTR: u16 = 0x10;

/// One message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The type of the message.
    pub kind: u16,
    /// The flags of the message.
    pub flags: u16,
    /// The number of the request it replies to.
    pub sequence: u32,
    /// The port id of the socket that it replies to; in a notice, of the one that made the change.
    pub port: u32,
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
        self.body.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// What an error carries besides its errno.
    pub(crate) fn extended_error(&self) -> ExtendedError {
        const NLM_F_CAPPED: u16 = 0x100;
        const NLM_F_ACK_TLVS: u16 = 0x200;
        const ERRNO: usize = 4;
        const NLMSGERR_ATTR_MSG: u16 = 1;
        const NLMSGERR_ATTR_OFFS: u16 = 2;
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return ExtendedError::default();
        }
        let request = if self.flags & NLM_F_CAPPED == 0 {
            usize::try_from(self.word(ERRNO)).unwrap_or(usize::MAX)
        } else {
            HEADER
        };
        let attributes = self.attributes(aligned(request).saturating_add(ERRNO));
        let offset = attributes.of(NLMSGERR_ATTR_OFFS).and_then(|offset| offset.u32());
        ExtendedError {
            reason: attributes.of(NLMSGERR_ATTR_MSG).map(|reason| reason.text()),
            offset: offset.and_then(|offset| usize::try_from(offset).ok()),
        }
    }

    pub(super) const fn interrupted(&self) -> bool {
        self.flags & NLM_F_DUMP_INTR != 0
    }
}

/// What an error carries besides its errno.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtendedError {
    /// The kernel's explanation.
    pub(crate) reason: Option<String>,
    /// Where the attribute at fault begins, counted from the start of the request.
    pub(crate) offset: Option<usize>,
}

/// The messages in a datagram; ends at the first that is truncated.
pub(super) fn replies(mut datagram: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    std::iter::from_fn(move || {
        let header: &[u8; HEADER] = datagram.first_chunk()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, p0, p1, p2, p3] = *header;
        let length = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).ok()?;
        let body = datagram.get(HEADER..length)?;
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
        Some(Reply {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            port: u32::from_ne_bytes([p0, p1, p2, p3]),
            body,
        })
    })
}

/// Whether a message ends a request: done, refused, or `None` because it carries data.
pub(super) fn status(reply: &Reply<'_>) -> Option<Result<(), Errno>> {
    match reply.kind {
        NLMSG_ERROR | NLMSG_DONE => {
            let code = i32::from_ne_bytes(reply.word(0).to_ne_bytes());
            Some(if code < 0 { Err(Errno::from_raw(code.wrapping_neg())) } else { Ok(()) })
        }
        NLMSG_MIN_TYPE.. => None,
        // No-operation and overrun: nothing the kernel sends today.
        _ => None,
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The type of the attribute, without the flags for nesting and byte order.
    pub kind: u16,
    /// The content of the attribute, which may be attributes again.
    pub payload: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The content as a byte.
    #[must_use]
    pub fn byte(&self) -> Option<u8> {
        self.payload.first().copied()
    }

    /// The content as a number of 16 bits in network byte order.
    #[must_use]
    pub fn be16(&self) -> Option<u16> {
        self.payload.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
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

    /// The content as a 64-bit number in network byte order.
    #[must_use]
    pub fn be64(&self) -> Option<u64> {
        self.payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// The content as text, up to a NUL if there is one. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        let end = self.payload.iter().position(|byte| *byte == 0).unwrap_or(self.payload.len());
        String::from_utf8_lossy(self.payload.get(..end).unwrap_or_default()).into_owned()
    }

    /// The attributes within it.
    #[must_use]
    pub const fn nested(&self) -> Attributes<'a> {
        Attributes::new(self.payload)
    }
}

/// Attributes in their order; ends at the first that is truncated.
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
        Some(Attribute { kind: u16::from_ne_bytes([k0, k1]) & NLA_TYPE_MASK, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
    use proptest::prelude::*;

    fn bytes_of(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.write(&mut bytes, 1, 42).unwrap();
        bytes
    }

    #[test]
    fn written_file_is_read_back() {
        let mut message = Message::new(20, 0x400, &[2, 0, 0, 0, 7]).with(1, &[9]).with_text(3, "lo");
        message.nested(4, |inner| inner.push_be32(5, 1337));
        let bytes = bytes_of(&message);
        let reply = replies(&bytes).next().unwrap();
        assert_eq!((reply.kind, reply.flags, reply.sequence), (20, 0x401, 42));
        let attributes: Vec<_> = reply.attributes(5).collect();
        assert_eq!(attributes.len(), 3);
        assert_eq!(attributes[0], Attribute { kind: 1, payload: &[9] });
        assert_eq!(attributes[1].text(), "lo");
        assert_eq!(attributes[2].nested().of(5).unwrap().be32(), Some(1337));
    }

    #[test]
    fn an_error_is_an_errno_and_zero_an_acknowledgement() {
        let of = |kind, code: i32| {
            status(&Reply { kind, flags: 0, sequence: 1, port: 0, body: &code.to_ne_bytes() })
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
                let _ = (status(&reply), reply.extended_error());
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
