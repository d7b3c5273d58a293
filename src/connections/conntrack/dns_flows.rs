//! DNS flows by whether they were captured.

use std::fmt;

/// Which DNS flows changed their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsFlows {
    /// Flows that bypassed the proxy. Their replies need no entry, so none is lost.
    Direct,
    /// Flows that went to the proxy. Replies to queries that are waiting are lost: they need the entry.
    Captured,
    /// All flows, direct and captured.
    All,
}

impl DnsFlows {
    /// Whether a flow belongs to these; `captured` if its destination is translated.
    #[must_use]
    pub const fn contains(self, captured: bool) -> bool {
        match self {
            Self::Direct => !captured,
            Self::Captured => captured,
            Self::All => true,
        }
    }

    pub(super) const fn to_bits(self) -> u32 {
        match self {
            Self::Direct => 1,
            Self::Captured => 2,
            Self::All => 3,
        }
    }

    pub(super) const fn from_bits(bits: u32) -> Option<Self> {
        match bits & 3 {
            1 => Some(Self::Direct),
            2 => Some(Self::Captured),
            3 => Some(Self::All),
            _ => None,
        }
    }

    /// The flows of this value and of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::All }
    }
}

impl fmt::Display for DnsFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "not captured before",
            Self::Captured => "captured before",
            Self::All => "captured or not",
        })
    }
}
