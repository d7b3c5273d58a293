//! Effects of rules on packets.

use super::{MarkChange, To, Translation, Zone};
use crate::model::{Port, Target};

/// The effect of a rule on a packet that passes its tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An effect that the model knows.
    Known(Target),
    /// The packet continues in this chain.
    Chain {
        /// The chain's name.
        name: String,
        /// Whether the packet does not come back (`goto`).
        is_goto: bool,
    },
    /// The packet is answered with an error in place of the receiver.
    Rejects,
    /// A program decides over the packet.
    Queues {
        /// Whether the packet continues if no program is there.
        bypass: bool,
    },
    /// An address or a port in the header of the packet is written.
    RewritesEnds,
    /// The packet leaves the rules, by a target that is not read.
    Takes,
    /// The packet goes to a transparent socket on this port, if there is one.
    ToSocket {
        /// The port; `None` if it is not known.
        port: Option<Port>,
        /// The mark that the packet gets.
        mark: Option<MarkChange>,
        /// Whether the packet is dropped without a socket, as by rules of iptables; by those of nftables it
        /// continues.
        drops: bool,
    },
    /// The packet goes to a transparent socket, which is there, on this port.
    GivesSocket(Port, Option<MarkChange>),
    /// The packet gets another destination; in `INPUT` and `POSTROUTING` another source.
    Translates(Translation),
    /// The packet gets another source.
    TranslatesSource,
    /// The packet or its connection gets a mark that is not known.
    Marks,
    /// A mark of the packet or of its connection changes.
    ChangesMark(MarkChange),
    /// The packet is exempt from connection tracking, so nat does not see it.
    Untracks,
    /// The connection is looked up in this zone; `None` if it is not known in which.
    SetsZone(Option<Zone>),
    /// The packet continues with the next rule.
    Continues,
}

impl Effect {
    /// Whether the packet does not continue on its way: it is dropped, answered with an error, or handed to a
    /// program.
    #[must_use]
    pub const fn stops_packets(&self) -> bool {
        matches!(self, Self::Known(Target::Drop) | Self::Rejects | Self::Queues { .. })
    }

    /// Whether the model has a term for the effect.
    #[must_use]
    pub const fn is_modelled(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    /// Whether the packet does not come back from the chain that it continues in.
    #[must_use]
    pub const fn is_goto(&self) -> bool {
        matches!(self, Self::Chain { is_goto: true, .. })
    }

    /// The change of a mark, if there is one: what is not known of it is `None`.
    #[must_use]
    pub fn mark_change(&self) -> Option<Option<MarkChange>> {
        if let Self::Known(target) = self {
            return match target {
                Target::SetMark(mark) => Some(Some(MarkChange::to(*mark))),
                Target::SaveMark => Some(Some(MarkChange::SAVE)),
                Target::RestoreMark => Some(Some(MarkChange::RESTORE)),
                Target::Accept
                | Target::ConntrackZone(_)
                | Target::Drop
                | Target::Jump(_)
                | Target::Redirect(_)
                | Target::Return
                | Target::Tproxy { .. } => None,
            };
        }
        if let Self::ChangesMark(change) = self {
            Some(Some(*change))
        } else {
            (*self == Self::Marks).then_some(None)
        }
    }

    /// Whether the packet, or its connection, may have another mark afterwards: also where a program, or a
    /// target that is not read, decides.
    #[must_use]
    pub fn may_mark(&self) -> bool {
        let may = matches!(self, Self::Takes | Self::Queues { .. } | Self::ToSocket { .. });
        may || matches!(self, Self::GivesSocket(_, Some(_))) || self.mark_change().is_some()
    }

    /// Whether the packet gets a loopback address as its destination.
    #[must_use]
    pub const fn is_to_loopback(&self) -> bool {
        matches!(self, Self::Translates(Translation { address: To::This(address), .. }) if address.is_loopback())
    }

    /// Whether the packet gets another destination or another source.
    #[must_use]
    pub const fn translates(&self) -> bool {
        matches!(self, Self::Translates(_) | Self::TranslatesSource)
    }
}
