//! Why a rule exists: one slug and one sentence each, used in docs, the gallery and messages.

/// One table of reasons: each row is a variant with a slug and a sentence, listed in [`Why::ALL`].
macro_rules! reasons {
    ($($(#[$doc:meta])+ $variant:ident, $slug:literal, $sentence:literal;)+) => {
        /// The reason for a rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Why {
            $($(#[$doc])+ $variant,)+
        }

        impl Why {
            /// Every reason, once.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// A short, stable name for machines.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self {
                    $(Self::$variant => $slug,)+
                }
            }

            /// One sentence: which traffic, what happens, and what would go wrong without the rule.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$variant => $sentence,)+
                }
            }
        }
    };
}

reasons! {
    /// `-c`, inbound.
    ExcludedInterfaceIn, "excluded-interface-in",
        "traffic that arrives on an excluded interface (-c) is not captured";
    /// `-c`, outbound.
    ExcludedInterfaceOut, "excluded-interface-out",
        "traffic that leaves by an excluded interface (-c) is not captured";
    /// `-k`, first rule.
    VirtualInterfaceLocal, "virtual-interface-rest",
        "traffic of a virtual interface (-k) outside the included ranges is not treated as inbound";
    /// `-k`, redirect.
    VirtualInterfaceOutbound, "virtual-interface-outbound",
        "traffic from a virtual interface (-k) was sent by a KubeVirt guest: it is outbound traffic";
    /// `--drop-invalid`, the jump.
    InvalidPacket, "invalid-packet",
        "a packet in conntrack state INVALID would pass untranslated and cause a reset (--drop-invalid)";
    /// `--drop-invalid`, the verdict.
    DropInvalid, "drop-invalid",
        "packets in conntrack state INVALID are dropped (--drop-invalid)";
    /// `-e`.
    TunnelPort, "tunnel-port",
        "the proxy itself listens on the HBONE tunnel port (-e): not redirected";
    /// `-p`.
    ToOutboundPort, "to-outbound-port",
        "outbound TCP goes to the proxy's outbound port (-p)";
    /// `-z`.
    ToInboundPort, "to-inbound-port",
        "inbound TCP goes to the proxy's inbound port (-z)";
    /// `-b` is not empty.
    InboundTraffic, "inbound-traffic",
        "inbound TCP enters the inbound chain (-b)";
    /// `-d`.
    ExcludedInboundPort, "excluded-inbound-port",
        "this inbound port is not captured (-d), for instance for health checks";
    /// `-b '*'`.
    EveryInboundPort, "every-inbound-port",
        "every other inbound port is captured (-b '*')";
    /// `-b LIST`.
    IncludedInboundPort, "included-inbound-port",
        "this inbound port is captured (-b)";
    /// TPROXY, known connections.
    KnownInboundConnection, "known-inbound-connection",
        "a packet of a connection that the proxy has already accepted goes straight to the proxy's socket";
    /// TPROXY, mark of a known connection.
    DivertMark, "divert-mark",
        "the mark routes the packet to the proxy's socket on this machine";
    /// TPROXY, end of a known connection's way.
    DivertAccept, "divert-accept",
        "a marked packet skips the rest of this table";
    /// TPROXY itself.
    TransparentProxy, "transparent-proxy",
        "a new inbound connection is handed to the proxy with its addresses unchanged (-m TPROXY)";
    /// The jump into the outbound chain.
    OutboundTraffic, "outbound-traffic",
        "traffic of the pod's processes enters the outbound chain";
    /// `-o`.
    ExcludedOutboundPort, "excluded-outbound-port",
        "this outbound port is not captured (-o)";
    /// Source 127.0.0.6 or `::6`.
    InboundPassthrough, "inbound-passthrough",
        "the proxy hands inbound connections to the app from this source: capturing them would loop";
    /// The proxy calls the pod's own service.
    ProxyCallsItself, "proxy-calls-itself",
        "the proxy calls the pod's own service address: treated as inbound, as from any other client";
    /// Loopback traffic of the app.
    AppLoopback, "app-loopback",
        "the app talks to itself over loopback, also by the pod's own address: not captured";
    /// Everything else of the proxy.
    ProxyTraffic, "proxy-traffic",
        "the proxy's own traffic is not captured: capturing it would loop (-u, -g)";
    /// Owner groups, excluded.
    ExcludedOwnerGroup, "excluded-owner-group",
        "outbound traffic of this group is not captured (ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE)";
    /// Owner groups, not included.
    OtherOwnerGroups, "other-owner-groups",
        "only the listed groups' outbound traffic is captured (ISTIO_OUTBOUND_OWNER_GROUPS)";
    /// The jump into the DNS chain.
    DnsTraffic, "dns-traffic",
        "DNS queries enter the DNS chain (--redirect-dns)";
    /// DNS redirect.
    DnsToProxy, "dns-to-proxy",
        "a DNS query goes to the proxy's DNS port, 15053 (--redirect-dns)";
    /// Conntrack zone of the proxy's own queries.
    DnsZoneProxyQuery, "dns-zone-proxy-query",
        "the proxy's own DNS queries are tracked apart from the app's, which may use the same UDP source port";
    /// Conntrack zone of the proxy's DNS responses.
    DnsZoneProxyResponse, "dns-zone-proxy-response",
        "the proxy's DNS responses are tracked in the zone of the app's queries, so conntrack pairs them";
    /// Conntrack zone of the app's queries.
    DnsZoneAppQuery, "dns-zone-app-query",
        "the app's DNS queries are tracked apart from the proxy's, which may use the same UDP source port";
    /// Conntrack zone of the servers' responses.
    DnsZoneServerResponse, "dns-zone-server-response",
        "the servers' DNS responses are tracked in the zone of the proxy's queries, so conntrack pairs them";
    /// Loopback destination.
    LoopbackDestination, "loopback-destination",
        "traffic to the loopback range is never treated as outbound";
    /// `-x`.
    ExcludedRange, "excluded-range",
        "this outbound range is not captured (-x)";
    /// `-q`.
    IncludedOutboundPort, "included-outbound-port",
        "this outbound port is captured, whatever the address (-q)";
    /// `-i LIST`.
    IncludedRange, "included-range",
        "this outbound range is captured (-i)";
    /// `-i '*'`.
    EveryRange, "every-range",
        "everything else that leaves the pod is captured (-i '*')";
    /// TPROXY: remember the mark.
    SaveMark, "save-mark",
        "the connection keeps the mark, so that replies to it can be recognised";
    /// TPROXY: a marked packet on lo.
    MarkedLoopback, "marked-loopback",
        "a marked packet on loopback is routed already";
    /// TPROXY: mark of the proxy's loopback calls.
    ProxyLoopbackMark, "proxy-loopback-mark",
        "the proxy's calls to the pod's own service get a mark that inbound capture recognises";
    /// TPROXY: mark of replies.
    RestoreMark, "restore-mark",
        "replies of a TPROXY connection get its mark back and so are routed to the proxy";
    /// TPROXY: already marked inbound packet.
    AlreadyMarked, "already-marked",
        "a packet that carries the mark is captured already";
    /// TPROXY: passthrough source.
    PassthroughSource, "passthrough-source",
        "the proxy hands inbound connections to the app from this source: capturing them again would loop";
    /// First capture in a live pod, while the run is under way.
    OpenConnection, "open-connection",
        "during first capture, no TCP connection is captured until every open connection has a conntrack entry";
    /// First capture in a live pod, until the last change of conntrack entries.
    SegmentDuringCapture, "segment-during-capture",
        "a connection whose conntrack entry is being replaced has none for a moment, and is not captured then";
    /// `--drop-invalid` at first capture in a live pod, while the run is under way.
    InvalidDuringCapture, "invalid-during-capture",
        "no invalid TCP packet is dropped until the conntrack entries of open connections are correct";
    /// The last rules of a family are gone, or clean-up with `--keep-connections`.
    KeepsTranslation, "keeps-translation",
        "nothing jumps to this rule; while it exists, the kernel keeps translating connections that are still open";
    /// TPROXY: loopback that is not the proxy's.
    OtherLoopback, "other-loopback",
        "loopback traffic is inbound only if the proxy sent it to the pod's own service";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_name_of_its_own_that_can_be_an_anchor() {
        let slugs: BTreeSet<&str> = Why::ALL.iter().map(|why| why.slug()).collect();
        assert_eq!(slugs.len(), Why::ALL.len());
        for slug in slugs {
            assert!(slug.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{slug}");
        }
    }

    #[test]
    fn every_reason_is_one_sentence() {
        for why in Why::ALL {
            let sentence = why.sentence();
            assert!(
                sentence.contains(' ') && !sentence.ends_with('.') && !sentence.contains('|'),
                "{sentence}"
            );
        }
    }
}
