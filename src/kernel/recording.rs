//! Where facts of the machine come from: from the machine itself, or from an earlier recording of one.
//!
//! Everything that reports about live rules depend on passes here as text: replies of netlink, files of
//! `/proc`, what the tools print. So the same code that reads a machine reads a recording, and nothing is
//! recorded that no report needs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

use lz4_flex::block;

use super::netlink::{self, Protocol};

/// A fact: a text, or the error in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// An errno.
    Errno(i32),
    /// Any other error.
    Error(String),
    /// What was read.
    Text(String),
}

/// Facts by their names.
pub type Facts = BTreeMap<String, Fact>;

#[derive(Debug, Default)]
enum Source {
    #[default]
    Machine,
    /// The machine, and what was read of it is kept. What is there already is not read again.
    Recording(Facts),
    /// A recording, with the first fact that it lacks.
    Recorded(Facts, Option<String>),
}

thread_local! {
    static SOURCE: RefCell<Source> = RefCell::default();
}

/// Keeps what this thread reads from now on.
pub fn start() {
    SOURCE.set(Source::Recording(Facts::new()));
    netlink::intercept(Some(netlink_reply));
}

/// What was read since [`start`]. The machine is read again from now on.
#[must_use]
pub fn finish() -> Facts {
    netlink::intercept(None);
    match SOURCE.take() {
        Source::Machine => Facts::new(),
        Source::Recording(facts) | Source::Recorded(facts, _) => facts,
    }
}

/// Takes every fact that this thread reads from now on from a recording.
pub fn replay(facts: Facts) {
    SOURCE.set(Source::Recorded(facts, None));
    netlink::intercept(Some(netlink_reply));
}

/// Whether facts come from a recording.
#[must_use]
pub fn is_replayed() -> bool {
    SOURCE.with_borrow(|source| matches!(source, Source::Recorded(..)))
}

/// The first fact that was asked for and is not in the recording.
#[must_use]
pub fn missing() -> Option<String> {
    SOURCE.with_borrow(|source| match source {
        Source::Recorded(_, missing) => missing.clone(),
        Source::Machine | Source::Recording(_) => None,
    })
}

/// What recordings of earlier versions lack, and reports can do without: that is an error of `read` alone.
///
/// # Errors
/// That of `read`.
pub fn optional<T>(read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = missing();
    let outcome = read();
    SOURCE.with_borrow_mut(|source| {
        if let Source::Recorded(_, missing) = source {
            *missing = before;
        }
    });
    outcome
}

/// Whether the machine is read, and nothing is kept.
pub(super) fn is_off() -> bool {
    SOURCE.with_borrow(|source| matches!(source, Source::Machine))
}

/// A fact of the machine, which `read` reads.
///
/// # Errors
/// That of `read`; or a recording does not have the fact.
pub fn text(name: &str, read: &mut dyn FnMut() -> io::Result<String>) -> io::Result<String> {
    // While it is read, what that reads is not a fact of its own.
    let mut source = SOURCE.take();
    let result = match &mut source {
        Source::Machine => read(),
        Source::Recording(facts) => facts.entry(name.to_owned()).or_insert_with(|| Fact::of(read())).result(),
        Source::Recorded(facts, missing) => facts.get(name).map_or_else(
            || {
                missing.get_or_insert_with(|| name.to_owned());
                Err(io::Error::other(["not in the bundle: ", name].concat()))
            },
            Fact::result,
        ),
    };
    SOURCE.set(source);
    result
}

impl Fact {
    fn of(read: io::Result<String>) -> Self {
        match read {
            Ok(text) => Self::Text(text),
            Err(error) => error.raw_os_error().map_or_else(|| Self::Error(error.to_string()), Self::Errno),
        }
    }

    fn result(&self) -> io::Result<String> {
        match self {
            Self::Errno(errno) => Err(io::Error::from_raw_os_error(*errno)),
            Self::Error(text) => Err(io::Error::other(text.clone())),
            Self::Text(text) => Ok(text.clone()),
        }
    }
}

/// What the kernel replies to a query or a dump.
fn netlink_reply(
    protocol: Protocol,
    request: &[u8],
    ask: &mut dyn FnMut() -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    if is_off() {
        return ask();
    }
    let protocol = match protocol {
        Protocol::Route => "netlink route ",
        Protocol::Netfilter => "netlink netfilter ",
        Protocol::SockDiag => "netlink sock_diag ",
        Protocol::Xfrm => "netlink xfrm ",
    };
    let name = [protocol, &encode(request)].concat();
    let reply = text(&name, &mut || ask().map(|bytes| encode(&block::compress_prepend_size(&bytes))))?;
    decode(&reply)
        .and_then(|packed| unpacked(&packed))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// What was compressed: messages of a dump are much alike.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    // A byte of the format stands for so many at most: a damaged size takes no memory.
    const MOST: usize = 255;
    let (size, rest) = block::uncompressed_size(packed).ok()?;
    if size > rest.len().saturating_mul(MOST) {
        return None;
    }
    block::decompress(rest, size).ok().filter(|bytes| bytes.len() == size)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 (RFC 4648), without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 2);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().zip([16, 8, 0]).fold(0, |group, (byte, shift)| group | u32::from(*byte) << shift);
        for shift in [18, 12, 6, 0].iter().take(chunk.len() + 1) {
            let digit = usize::try_from(group >> shift & 63).unwrap_or_default();
            text.push(DIGITS.get(digit).copied().unwrap_or_default().into());
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        let mut group = 0;
        for (digit, shift) in chunk.iter().zip([18, 12, 6, 0]) {
            let value = DIGITS.iter().position(|known| known == digit)?;
            group |= u32::try_from(value).ok()? << shift;
        }
        let [_, group @ ..] = group.to_be_bytes();
        bytes.extend(group.iter().take(chunk.len().saturating_sub(1)));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_survive() {
        for length in 0..260_u16 {
            let bytes: Vec<u8> = (0..length).map(|byte| (byte * 7 % 256) as u8).collect();
            assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
        assert_eq!(encode(b"foob"), "Zm9vYg");
        assert_eq!(decode("Zm9v!"), None);
    }

    #[test]
    fn compressed_bytes_are_read_back_and_damaged_ones_are_none() {
        for bytes in [&[][..], &[7], &[0; 5000], &(0..=255).collect::<Vec<u8>>()] {
            assert_eq!(unpacked(&block::compress_prepend_size(bytes)).as_deref(), Some(bytes));
        }
        let packed = block::compress_prepend_size(&[1; 100]);
        for length in 0..packed.len() {
            assert_eq!(unpacked(&packed[..length]), None, "{length}");
        }
        assert_eq!(unpacked(&[255; 20]), None);
    }

    #[test]
    fn a_recording_replies_as_the_machine_did() {
        start();
        let error = || Err(io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(text("a", &mut || Ok("1\n".to_owned())).unwrap(), "1\n");
        assert_eq!(text("a", &mut || Ok("2".to_owned())).unwrap(), "1\n", "read once");
        assert!(text("b", &mut || error()).is_err());
        // Part of another fact.
        text("c", &mut || text("d", &mut || Ok(String::new()))).unwrap();
        let facts = finish();
        assert_eq!(facts.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        replay(facts);
        assert!(is_replayed() && missing().is_none());
        let never = || -> io::Result<String> { panic!("the machine is read") };
        assert_eq!(text("a", &mut || never()).unwrap(), "1\n");
        assert_eq!(text("b", &mut || never()).unwrap_err().raw_os_error(), Some(libc::EACCES));
        assert_eq!(text("e", &mut || never()).unwrap_err().to_string(), "not in the bundle: e");
        assert_eq!(missing().as_deref(), Some("e"));
        let _ = finish();
        assert!(text("a", &mut || Ok("3".to_owned())).unwrap() == "3" && !is_replayed());
    }
}
