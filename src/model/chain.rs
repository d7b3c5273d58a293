//! Tables and chains: an enum variant each, so that a misspelt one does not compile.

/// The tables we write to, in the order in which a packet meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Before connection tracking.
    Raw,
    /// Marks, TPROXY.
    Mangle,
    /// Redirections; only the first packet of a connection gets here.
    Nat,
}

impl Table {
    /// All tables, in the order in which a packet meets them.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Mangle, Self::Nat];

    /// The kernel's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
        }
    }

    /// The priority of its chains `PREROUTING` and `OUTPUT`, in iptables and native nftables (`NF_IP_PRI_*`
    /// in linux/netfilter_ipv4.h).
    #[must_use]
    pub const fn priority(self) -> i32 {
        match self {
            Self::Raw => -300,
            Self::Mangle => -150,
            Self::Nat => -100,
        }
    }

    /// The nftables type of these chains. A chain of type `route` has packets with a changed mark routed
    /// again.
    #[must_use]
    pub const fn chain_type(self, hook: Hook) -> &'static str {
        match (self, hook) {
            (Self::Nat, _) => "nat",
            (Self::Mangle, Hook::Output) => "route",
            (Self::Mangle, Hook::Prerouting) | (Self::Raw, _) => "filter",
        }
    }
}

/// The built-in chains that jump to our chains. They are shared with all other programs in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Packets that come in, also over `lo`.
    Prerouting,
    /// Packets made by a local process.
    Output,
}

impl Hook {
    /// The hooks, in the order of the rules file.
    pub const ALL: [Self; 2] = [Self::Prerouting, Self::Output];

    /// The name in iptables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "PREROUTING",
            Self::Output => "OUTPUT",
        }
    }
}

/// The chains that are ours. The names are Istio's: operators and tools search for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// Inbound traffic.
    Inbound,
    /// Sends to the proxy's inbound port.
    InRedirect,
    /// Sends to the proxy's outbound port.
    Redirect,
    /// Outbound traffic.
    Output,
    /// DNS queries of the pod.
    OutputDns,
    /// Packets of connections that TPROXY has already taken.
    Divert,
    /// Takes new inbound connections with TPROXY.
    Tproxy,
    /// Drops.
    Drop,
    /// Keeps the translation of established connections up; nothing jumps to it.
    Established,
}

impl Chain {
    /// The chains, in the order of the rules file.
    pub const ALL: [Self; 9] = [
        Self::Inbound,
        Self::InRedirect,
        Self::Redirect,
        Self::Output,
        Self::OutputDns,
        Self::Divert,
        Self::Tproxy,
        Self::Drop,
        Self::Established,
    ];

    /// The name in iptables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inbound => "ISTIO_INBOUND",
            Self::InRedirect => "ISTIO_IN_REDIRECT",
            Self::Redirect => "ISTIO_REDIRECT",
            Self::Output => "ISTIO_OUTPUT",
            Self::OutputDns => "ISTIO_OUTPUT_DNS",
            Self::Divert => "ISTIO_DIVERT",
            Self::Tproxy => "ISTIO_TPROXY",
            Self::Drop => "ISTIO_DROP",
            Self::Established => "ISTIO_ESTABLISHED",
        }
    }

    /// The chain that iptables knows under `name`, if it is one of ours.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|chain| chain.name() == name)
    }
}
