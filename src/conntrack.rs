//! Connection tracking entries that keep a connection on its old way after the rules changed.
//!
//! Only the first packet of a connection meets the nat rules; all others follow its entry.

use std::fmt;

use crate::model::{Family, Mark};

/// The zone of what the pod's processes and the proxy exchange on the proxy's DNS port; see `policy::dns`.
pub const APP_TO_PROXY_ZONE: u16 = 2;

/// A change of the connection tracking table, made after the last commit of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Deletes the UDP entries with original destination port 53, in zone 0 and in [`APP_TO_PROXY_ZONE`]. A socket that
    /// keeps its source port would follow its entry as long as its queries come faster than the entry's timeout.
    DeleteDnsUdp(Family, DnsFlows),
    /// Deletes the TCP entries in state CLOSE. For 10 s after the server's reset a SYN on the same ports follows the
    /// entry instead of the rules. Entries in other states belong to live connections, or give way to a SYN.
    DeleteClosedTcp(Family),
    /// Clears this mark from TCP entries whose original source is not a local socket. Such an entry got the mark while
    /// two rule sets were live: every answer on it is routed back into the pod. The proxy's own connections keep it.
    ClearForeignMark(Family, Mark),
}

/// Which DNS flows changed their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsFlows {
    /// Those that went past the proxy. Their answers need no entry, so none is lost.
    Direct,
    /// Those that went to the proxy. Answers to queries that are waiting are lost: they need the entry.
    Captured,
    /// Both.
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
}

impl fmt::Display for DnsFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "not captured",
            Self::Captured => "captured",
            Self::All => "captured or not",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteDnsUdp(family, flows) => write!(
                f,
                "delete conntrack entries: {family} UDP to port 53, {flows}, zones 0 and {APP_TO_PROXY_ZONE}"
            ),
            Self::DeleteClosedTcp(family) => {
                write!(f, "delete conntrack entries: {family} TCP in state CLOSE")
            }
            Self::ClearForeignMark(family, mark) => {
                write!(f, "clear mark {mark} of conntrack entries: {family} TCP that no local socket began")
            }
        }
    }
}
