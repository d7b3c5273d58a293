//! The hooks of netfilter, also those in which no rule of ours is.

use nfnetlink::nftables::Hook as NftHook;

use crate::model::Hook;
use crate::parse::{FORWARD, INPUT, POSTROUTING};

/// The hooks that a packet traverses over `lo`, in order; and that of forwarded packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Output,
    Postrouting,
    Prerouting,
    Input,
    Forward,
}

impl Stage {
    /// The hooks in which the way of a packet is chosen already.
    pub(crate) const ROUTED: [Self; 3] = [Self::Input, Self::Forward, Self::Postrouting];

    /// The stage of a base chain of nftables, if IP packets of this machine traverse it.
    pub(crate) const fn of(hook: NftHook) -> Option<Self> {
        match hook {
            NftHook::Input => Some(Self::Input),
            NftHook::Output => Some(Self::Output),
            NftHook::Prerouting => Some(Self::Prerouting),
            NftHook::Postrouting => Some(Self::Postrouting),
            NftHook::Forward => Some(Self::Forward),
            NftHook::Foreign(_) => None,
        }
    }

    /// Whether chains of nat translate sources there.
    pub(crate) const fn translates_sources(self) -> bool {
        matches!(self, Self::Input | Self::Postrouting)
    }

    /// The hook, if rules of ours may be in it.
    pub(crate) const fn hook(self) -> Option<Hook> {
        match self {
            Self::Output => Some(Hook::Output),
            Self::Prerouting => Some(Hook::Prerouting),
            Self::Input | Self::Postrouting | Self::Forward => None,
        }
    }

    /// Whether what is met there leaves the pod, or the process.
    pub(crate) const fn is_sent(self) -> bool {
        matches!(self, Self::Output | Self::Postrouting)
    }

    /// The chain of iptables at the hook.
    pub(crate) const fn chain(self) -> &'static str {
        match self {
            Self::Output => Hook::Output.name(),
            Self::Postrouting => POSTROUTING,
            Self::Prerouting => Hook::Prerouting.name(),
            Self::Input => INPUT,
            Self::Forward => FORWARD,
        }
    }

    /// The name of the hook in nftables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
        }
    }
}

impl From<Hook> for Stage {
    fn from(hook: Hook) -> Self {
        match hook {
            Hook::Output => Self::Output,
            Hook::Prerouting => Self::Prerouting,
        }
    }
}
