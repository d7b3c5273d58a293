//! Why a rule exists: one name and one sentence each, used by everything that explains rules to people.

/// The reason for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// `-c`, inbound.
    ExcludedInterfaceIn,
    /// `-c`, outbound.
    ExcludedInterfaceOut,
    /// `-k`, first rule.
    VirtualInterfaceLocal,
    /// `-k`, redirect.
    VirtualInterfaceOutbound,
    /// `--drop-invalid`, the jump.
    InvalidPacket,
    /// `--drop-invalid`, the verdict.
    DropInvalid,
    /// `-e`.
    TunnelPort,
    /// `-p`.
    ToOutboundPort,
    /// `-z`.
    ToInboundPort,
    /// `-b` is not empty.
    InboundTraffic,
    /// `-d`.
    ExcludedInboundPort,
    /// `-b '*'`.
    EveryInboundPort,
    /// `-b LIST`.
    IncludedInboundPort,
    /// TPROXY, known connections.
    KnownInboundConnection,
    /// TPROXY, mark of a known connection.
    DivertMark,
    /// TPROXY, end of a known connection's way.
    DivertAccept,
    /// TPROXY itself.
    TransparentProxy,
    /// The jump into the outbound chain.
    OutboundTraffic,
    /// `-o`.
    ExcludedOutboundPort,
    /// Source 127.0.0.6 or `::6`.
    InboundPassthrough,
    /// The proxy calls the pod's own service.
    ProxyCallsItself,
    /// Loopback traffic of the app.
    AppLoopback,
    /// Everything else of the proxy.
    ProxyTraffic,
    /// Owner groups, excluded.
    ExcludedOwnerGroup,
    /// Owner groups, not included.
    OtherOwnerGroups,
    /// The jump into the DNS chain.
    DnsTraffic,
    /// DNS redirect.
    DnsToProxy,
    /// Conntrack zone of the proxy's own queries.
    DnsZoneProxyQuery,
    /// Conntrack zone of the proxy's answers.
    DnsZoneProxyAnswer,
    /// Conntrack zone of the app's queries.
    DnsZoneAppQuery,
    /// Conntrack zone of the servers' answers.
    DnsZoneServerAnswer,
    /// Loopback destination.
    LoopbackDestination,
    /// `-x`.
    ExcludedRange,
    /// `-q`.
    IncludedOutboundPort,
    /// `-i LIST`.
    IncludedRange,
    /// `-i '*'`.
    EveryRange,
    /// TPROXY: remember the mark.
    SaveMark,
    /// TPROXY: a marked packet on lo.
    MarkedLoopback,
    /// TPROXY: mark of the proxy's loopback calls.
    ProxyLoopbackMark,
    /// TPROXY: mark of answers.
    RestoreMark,
    /// TPROXY: already marked inbound packet.
    AlreadyMarked,
    /// TPROXY: passthrough source.
    PassthroughSource,
    /// TPROXY: loopback that is not the proxy's.
    OtherLoopback,
}

impl Why {
    /// A short name that stays the same, for machines.
    #[must_use]
    pub const fn slug(self) -> &'static str {
        self.texts().0
    }

    /// One sentence for people: which traffic, what happens, and what would go wrong without the rule.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        self.texts().1
    }

    #[allow(clippy::too_many_lines, reason = "one table, a row per reason")]
    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::ExcludedInterfaceIn => (
                "excluded-interface-in",
                "traffic that comes in by an excluded interface (-c) is left alone",
            ),
            Self::ExcludedInterfaceOut => (
                "excluded-interface-out",
                "traffic that leaves by an excluded interface (-c) is left alone",
            ),
            Self::VirtualInterfaceLocal => (
                "virtual-interface-rest",
                "what a virtual interface (-k) sends and no included range takes is not treated as inbound",
            ),
            Self::VirtualInterfaceOutbound => (
                "virtual-interface-outbound",
                "what comes from a virtual interface (-k) was sent by a guest: it is outbound traffic",
            ),
            Self::InvalidPacket => (
                "invalid-packet",
                "a packet that fits no connection would pass untranslated and make the peer reset (--drop-invalid)",
            ),
            Self::DropInvalid => (
                "drop-invalid",
                "packets that fit no connection are dropped (--drop-invalid)",
            ),
            Self::TunnelPort => (
                "tunnel-port",
                "the proxy itself listens on the HBONE tunnel port (-e), nothing is to be redirected",
            ),
            Self::ToOutboundPort => (
                "to-outbound-port",
                "outbound TCP goes to the proxy's outbound port (-p)",
            ),
            Self::ToInboundPort => (
                "to-inbound-port",
                "inbound TCP goes to the proxy's inbound port (-z)",
            ),
            Self::InboundTraffic => ("inbound-traffic", "TCP that comes into the pod is looked at (-b)"),
            Self::ExcludedInboundPort => (
                "excluded-inbound-port",
                "this inbound port is left alone (-d), for instance for health checks",
            ),
            Self::EveryInboundPort => (
                "every-inbound-port",
                "every other inbound port is captured (-b '*')",
            ),
            Self::IncludedInboundPort => ("included-inbound-port", "this inbound port is captured (-b)"),
            Self::KnownInboundConnection => (
                "known-inbound-connection",
                "a packet of a connection that the proxy already has goes straight to its socket",
            ),
            Self::DivertMark => (
                "divert-mark",
                "the mark routes the packet to the proxy's socket on this machine",
            ),
            Self::DivertAccept => (
                "divert-accept",
                "a marked packet needs no further look in this table",
            ),
            Self::TransparentProxy => (
                "transparent-proxy",
                "a new inbound connection is handed to the proxy with its addresses unchanged (-m TPROXY)",
            ),
            Self::OutboundTraffic => ("outbound-traffic", "what the pod's processes send is looked at"),
            Self::ExcludedOutboundPort => ("excluded-outbound-port", "this outbound port is left alone (-o)"),
            Self::InboundPassthrough => (
                "inbound-passthrough",
                "the proxy hands inbound connections to the app from this source: capturing them would loop",
            ),
            Self::ProxyCallsItself => (
                "proxy-calls-itself",
                "the proxy calls the pod's own service address: it is treated as inbound, as from any other client",
            ),
            Self::AppLoopback => (
                "app-loopback",
                "the app talks to itself over loopback, also by the pod's own address: left alone",
            ),
            Self::ProxyTraffic => (
                "proxy-traffic",
                "the proxy's own traffic is left alone: capturing it would loop for ever (-u, -g)",
            ),
            Self::ExcludedOwnerGroup => (
                "excluded-owner-group",
                "outbound traffic of this group is left alone (ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE)",
            ),
            Self::OtherOwnerGroups => (
                "other-owner-groups",
                "only the listed groups' outbound traffic is captured (ISTIO_OUTBOUND_OWNER_GROUPS)",
            ),
            Self::DnsTraffic => ("dns-traffic", "DNS queries are looked at (--redirect-dns)"),
            Self::DnsToProxy => (
                "dns-to-proxy",
                "a DNS query goes to the proxy's DNS port, 15053 (--redirect-dns)",
            ),
            Self::DnsZoneProxyQuery => (
                "dns-zone-proxy-query",
                "the proxy's own DNS queries are tracked apart from the app's, which may use the same UDP source port",
            ),
            Self::DnsZoneProxyAnswer => (
                "dns-zone-proxy-answer",
                "the proxy's DNS answers are tracked in the zone of the app's queries, so that they match them",
            ),
            Self::DnsZoneAppQuery => (
                "dns-zone-app-query",
                "the app's DNS queries are tracked apart from the proxy's, which may use the same UDP source port",
            ),
            Self::DnsZoneServerAnswer => (
                "dns-zone-server-answer",
                "the servers' DNS answers are tracked in the zone of the proxy's queries, so that they match them",
            ),
            Self::LoopbackDestination => ("loopback-destination", "loopback is never outbound traffic"),
            Self::ExcludedRange => ("excluded-range", "this outbound range is left alone (-x)"),
            Self::IncludedOutboundPort => (
                "included-outbound-port",
                "this outbound port is captured, whatever the address (-q)",
            ),
            Self::IncludedRange => ("included-range", "this outbound range is captured (-i)"),
            Self::EveryRange => (
                "every-range",
                "everything else that leaves the pod is captured (-i '*')",
            ),
            Self::SaveMark => (
                "save-mark",
                "the connection keeps the mark, so that answers to it can be recognised",
            ),
            Self::MarkedLoopback => (
                "marked-loopback",
                "a marked packet on loopback is on its way already",
            ),
            Self::ProxyLoopbackMark => (
                "proxy-loopback-mark",
                "the proxy's calls to the pod's own service get a mark that inbound capture recognises",
            ),
            Self::RestoreMark => (
                "restore-mark",
                "answers of a TPROXY connection get its mark back and so are routed to the proxy",
            ),
            Self::AlreadyMarked => (
                "already-marked",
                "a packet that carries the mark was taken already",
            ),
            Self::PassthroughSource => (
                "passthrough-source",
                "the proxy hands inbound connections to the app from this source: taking them again would loop",
            ),
            Self::OtherLoopback => (
                "other-loopback",
                "loopback traffic is inbound only if the proxy sent it to the pod's own service",
            ),
        }
    }
}
