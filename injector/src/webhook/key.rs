//! What verdicts are kept under.

use sha2::{Digest as _, Sha256};

/// Everything that a verdict depends on, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

/// Makes a [`Key`]. Every part carries its length, so that no two lists of parts look the same.
#[derive(Debug, Default)]
pub struct Parts(Sha256);

impl Parts {
    /// Adds a part.
    #[must_use]
    pub fn and(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// The key.
    #[must_use]
    pub fn key(self) -> Key {
        Key(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |parts: &[&str]| parts.iter().fold(Parts::default(), Parts::and).key();
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a", ""]), of(&["a"]));
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
    }
}
