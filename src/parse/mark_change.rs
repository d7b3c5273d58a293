//! Targets that change the mark of a packet or of its connection.

use super::statement::number;
use crate::model::Mark;

/// Some bits of a mark: these are cleared, and those of the value toggled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    value: u32,
    mask: u32,
}

impl Bits {
    const fn of(self, mark: Mark) -> Mark {
        Mark((mark.0 & !self.mask) ^ self.value)
    }
}

/// A change of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkChange {
    /// Of the packet's.
    Packet(Bits),
    /// Of the connection's.
    Connection(Bits),
    /// The packet's bits of one mask take the place of the connection's of the other.
    Save {
        /// The packet's.
        from: u32,
        /// The connection's.
        to: u32,
    },
    /// The connection's bits of one mask take the place of the packet's of the other.
    Restore {
        /// The connection's.
        from: u32,
        /// The packet's.
        to: u32,
    },
}

impl MarkChange {
    /// What a target and its options do; `None` if that is not a change of a mark, or not understood.
    #[must_use]
    pub fn of(target: &[&str]) -> Option<Self> {
        let whole = u32::MAX;
        Some(match target {
            ["MARK", "--set-xmark", bits] => Self::Packet(xmark(bits)?),
            // Clears the bits of the value, too.
            ["MARK", "--set-mark", bits] => {
                let Bits { value, mask } = xmark(bits)?;
                Self::Packet(Bits { value, mask: value | mask })
            }
            ["CONNMARK", "--set-xmark", bits] => Self::Connection(xmark(bits)?),
            ["CONNMARK", "--save-mark"] => Self::Save { from: whole, to: whole },
            ["CONNMARK", "--restore-mark"] => Self::Restore { from: whole, to: whole },
            ["CONNMARK", kind @ ("--save-mark" | "--restore-mark"), "--mask", mask] => {
                let mask = number(mask)?;
                Self::copy(kind, mask, mask)
            }
            [
                "CONNMARK",
                kind @ ("--save-mark" | "--restore-mark"),
                "--nfmask",
                packet,
                "--ctmask",
                connection,
            ] => Self::copy(kind, number(packet)?, number(connection)?),
            _ => return None,
        })
    }

    /// A packet gets this mark.
    #[must_use]
    pub const fn to(mark: Mark) -> Self {
        Self::Packet(Bits { value: mark.0, mask: u32::MAX })
    }

    fn copy(kind: &str, packet: u32, connection: u32) -> Self {
        if kind == "--save-mark" {
            Self::Save { from: packet, to: connection }
        } else {
            Self::Restore { from: connection, to: packet }
        }
    }

    /// Whether there is nothing to change or to copy without a connection.
    #[must_use]
    pub const fn needs_connection(self) -> bool {
        !matches!(self, Self::Packet(_))
    }

    /// The marks of a packet and of its connection afterwards.
    #[must_use]
    pub fn apply(self, packet: Mark, connection: Mark) -> (Mark, Mark) {
        let copied = |from: Mark, mask: u32, to: u32| Bits { value: from.0 & mask, mask: to };
        match self {
            Self::Packet(bits) => (bits.of(packet), connection),
            Self::Connection(bits) => (packet, bits.of(connection)),
            Self::Save { from, to } => (packet, copied(packet, from, to).of(connection)),
            Self::Restore { from, to } => (copied(connection, from, to).of(packet), connection),
        }
    }
}

/// A mark, and the bits of it that count.
fn xmark(text: &str) -> Option<Bits> {
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (number(value)?, number(mask)?),
        None => (number(text)?, u32::MAX),
    };
    Some(Bits { value, mask })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_marks_are_changed_as_the_kernel_does() {
        let of = |words: &str| MarkChange::of(&words.split(' ').collect::<Vec<_>>());
        let set = |words: &str, mark: u32| match of(words) {
            Some(change @ MarkChange::Packet(_)) => change.apply(Mark(mark), Mark(0)).0.0,
            other => panic!("{words}: {other:?}"),
        };
        assert_eq!(set("MARK --set-xmark 0x539/0xffffffff", 7), 0x539);
        assert_eq!(set("MARK --set-xmark 0x4000/0x4000", 0x8001), 0xc001);
        assert_eq!(set("MARK --set-xmark 0x0/0x1", 3), 2);
        assert_eq!(set("MARK --set-mark 0x5/0x1", 2), 7);
        assert_eq!(
            of("CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff00"),
            Some(MarkChange::Restore { from: 0xff00, to: 0xff })
        );
        assert_eq!(of("HMARK --hmark-tuple src"), None);
    }
}
