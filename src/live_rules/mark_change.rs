//! Targets that change the mark of a packet or of its connection.

use crate::model::Mark;

/// Some bits of a mark: these are cleared, and those of the value toggled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The bits that are toggled.
    pub value: u32,
    /// The bits that are cleared before.
    pub mask: u32,
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
    /// The packet's mark becomes the connection's.
    pub const SAVE: Self = Self::Save { from: u32::MAX, to: u32::MAX };
    /// The connection's mark becomes the packet's.
    pub const RESTORE: Self = Self::Restore { from: u32::MAX, to: u32::MAX };

    /// A packet gets this mark.
    #[must_use]
    pub const fn to(mark: Mark) -> Self {
        Self::Packet(Bits { value: mark.0, mask: u32::MAX })
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
