//! User data: comments and the byte order of set keys, in the form of nft 1.0.

use std::fmt;

/// Longest comment that `nft` accepts in its input, in bytes. The kernel takes 253.
const MOST: usize = 127;
/// The comment of a table, chain or rule.
const COMMENT: u8 = 0;

/// A comment on a table or rule, which `nft list` shows: 1 to 127 bytes that a line of nft's input can hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Comment(String);

impl Comment {
    /// The comment with this text; `None` if it is empty, longer than 127 bytes, or has a quotation mark or
    /// control characters in it.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let plain = text.chars().all(|c| c != '"' && !c.is_control());
        (plain && (1..=MOST).contains(&text.len())).then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As user data.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![COMMENT, u8::try_from(self.0.len() + 1).unwrap_or(u8::MAX)];
        bytes.extend(self.0.bytes().take(usize::from(u8::MAX) - 1));
        bytes.push(0);
        bytes
    }

    /// The comment in user data, if there is one. It may be one that [`Self::new`] refuses.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let content = user_data(bytes).find(|(kind, _)| *kind == COMMENT)?.1;
        let end = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
        Some(Self(String::from_utf8_lossy(content.get(..end)?).into_owned()))
    }
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The entries of user data: a type, a length and a content each.
fn user_data(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [kind, length] = *bytes.first_chunk()?;
        let end = 2 + usize::from(length);
        let content = bytes.get(2..end)?;
        bytes = bytes.get(end..).unwrap_or_default();
        Some((kind, content))
    })
}

/// The user data of a set: the byte order of its keys, without which `nft` prints numbers in host byte order
/// wrongly.
pub(super) fn byte_order(host: bool) -> [u8; 6] {
    const KEY_BYTE_ORDER: u8 = 0;
    let [a, b, c, d] = if host { 1_u32 } else { 2 }.to_ne_bytes();
    [KEY_BYTE_ORDER, 4, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_limited_to_what_nft_reads_back() {
        assert_eq!(Comment::new(""), None);
        assert_eq!(Comment::new("say \"no\""), None);
        assert_eq!(Comment::new("two\nlines"), None);
        assert_eq!(Comment::new(&"x".repeat(128)), None);
        let longest = Comment::new(&"x".repeat(127)).unwrap();
        assert_eq!(longest.encode().len(), 130);
        assert_eq!(Comment::decode(&longest.encode()), Some(longest));
    }

    #[test]
    fn user_data_of_other_kinds_is_skipped() {
        let comment = Comment::new("a").unwrap();
        let bytes = [&[3, 2, 9, 9][..], &comment.encode()].concat();
        assert_eq!(Comment::decode(&bytes), Some(comment));
        assert_eq!(Comment::decode(&[0, 200, 1]), None);
        assert_eq!(byte_order(true), [0, 4, 1, 0, 0, 0]);
    }
}
