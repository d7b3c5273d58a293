//! Targets of rules.

use super::{Chain, Mark, Port};

/// The target of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The table is done with the packet.
    Accept,
    /// Tracks the packet's connection in a conntrack zone of its own.
    ConntrackZone(u16),
    /// The packet is thrown away.
    Drop,
    /// Goes on in one of our chains, and comes back if that one does not decide.
    Jump(Chain),
    /// Changes the destination to this port on the machine itself.
    Redirect(Port),
    /// Copies the connection's mark to the packet.
    RestoreMark,
    /// Leaves the chain.
    Return,
    /// Copies the packet's mark to its connection.
    SaveMark,
    /// Marks the packet.
    SetMark(Mark),
    /// Hands the packet, unchanged, to a transparent socket on this port, and marks it.
    Tproxy {
        /// Port of the socket.
        port: Port,
        /// Mark that routes the packet to `lo`.
        mark: Mark,
    },
}

impl Target {
    /// The name of the target in iptables, or that of the chain that is jumped to.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "ACCEPT",
            Self::ConntrackZone(_) => "CT",
            Self::Drop => "DROP",
            Self::Jump(chain) => chain.name(),
            Self::Redirect(_) => "REDIRECT",
            Self::RestoreMark | Self::SaveMark => "CONNMARK",
            Self::Return => "RETURN",
            Self::SetMark(_) => "MARK",
            Self::Tproxy { .. } => "TPROXY",
        }
    }

    /// The chain that is jumped to, if any.
    #[must_use]
    pub const fn jump(self) -> Option<Chain> {
        if let Self::Jump(chain) = self { Some(chain) } else { None }
    }

    /// The port to which it redirects, if it does.
    #[must_use]
    pub const fn redirect(self) -> Option<Port> {
        if let Self::Redirect(port) = self { Some(port) } else { None }
    }

    /// The port whose transparent socket gets the packet, if one does.
    #[must_use]
    pub const fn tproxy(self) -> Option<Port> {
        if let Self::Tproxy { port, .. } = self { Some(port) } else { None }
    }
}
