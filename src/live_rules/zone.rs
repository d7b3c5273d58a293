//! Zones of connection tracking.

/// A zone of connection tracking: connections in different zones know nothing of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Of what goes in the direction of the first packet.
    pub original: u16,
    /// Of the replies.
    pub reply: u16,
}

impl Zone {
    /// One zone for both directions.
    #[must_use]
    pub const fn both(zone: u16) -> Self {
        Self { original: zone, reply: zone }
    }
}
