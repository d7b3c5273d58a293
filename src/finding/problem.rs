//! The kinds of findings: one table of ids, titles and fixes.

/// A kind of finding, the most harmful first. The order is that of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// No rule of ours is there.
    NoRules,
    /// Rules of ours are there, for no port and no range.
    CapturesNothing,
    /// The pod has an IPv4 address and rules of IPv6 only.
    Ipv4NotCaptured,
    /// A table of ours is switched off.
    Dormant,
    /// The guard drops new connections.
    Lockdown,
    /// `lo` cannot carry captured packets.
    LoopbackUnusable,
    /// No socket is on a port that rules hand packets to.
    ProxyNotListening,
    /// Another program has changed a chain of ours.
    BrokenChain,
    /// Two backends hold rules of ours.
    TwoBackends,
    /// A socket of the proxy cannot take what rules hand it.
    ProxyListener,
    /// Packets do not arrive.
    TrafficLost,
    /// The queries of the pod's own resolver are captured.
    DnsLoop,
    /// A rule of another program decides before ours.
    ForeignRule,
    /// A base chain of another program has its say.
    ForeignChain,
    /// Policy rules or routes keep packets from the proxy.
    PolicyRouting,
    /// A rule of another program sets the mark of TPROXY.
    TproxyMark,
    /// The settings of an interface drop captured packets.
    InterfaceDrops,
    /// What the pod forwards is captured as inbound.
    ForwardedTraffic,
    /// A process of the app has a uid or gid of the proxy.
    AppAsProxy,
    /// The pod has an IPv6 address and no IPv6 rules.
    Ipv6NotCaptured,
    /// An option excludes half of IPv4 or more.
    WideExclusion,
    /// The proxy serves DNS, and no rule sends queries there.
    DnsNotCaptured,
    /// A BPF program replaces the addresses of name servers.
    DnsTranslated,
    /// There is no default route.
    NoRoute,
    /// No socket is on a captured port of the app.
    AppNotListening,
    /// A listener of the app does not take what the proxy sends.
    AppListener,
    /// Connections began before capture.
    OlderConnections,
    /// Something that the report cannot follow may decide.
    NotEvaluated,
    /// Rules stay that are perhaps those of an earlier run.
    KeptRules,
}

/// What a report says of a kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The stable name.
    pub id: &'static str,
    /// The verdict in the first line.
    pub title: &'static str,
    /// The fix, with its command; `{}` is the subject of the finding.
    pub fix: &'static str,
}

impl Problem {
    /// The problems, the most harmful first.
    pub const ALL: [Self; 29] = [
        Self::NoRules,
        Self::CapturesNothing,
        Self::Ipv4NotCaptured,
        Self::Dormant,
        Self::Lockdown,
        Self::LoopbackUnusable,
        Self::ProxyNotListening,
        Self::BrokenChain,
        Self::TwoBackends,
        Self::ProxyListener,
        Self::TrafficLost,
        Self::DnsLoop,
        Self::ForeignRule,
        Self::ForeignChain,
        Self::PolicyRouting,
        Self::TproxyMark,
        Self::InterfaceDrops,
        Self::ForwardedTraffic,
        Self::AppAsProxy,
        Self::Ipv6NotCaptured,
        Self::WideExclusion,
        Self::DnsNotCaptured,
        Self::DnsTranslated,
        Self::NoRoute,
        Self::AppNotListening,
        Self::AppListener,
        Self::OlderConnections,
        Self::NotEvaluated,
        Self::KeptRules,
    ];

    /// The row of the problem in the table.
    #[must_use]
    #[allow(clippy::too_many_lines, reason = "a table")]
    pub const fn spec(self) -> Spec {
        let (id, title, fix) = match self {
            Self::NoRules => (
                "no-rules",
                "no capture rule is live",
                "`istio-iptables -i '*' -b '*'`, beside the pod's other options, writes them; in a cluster: `kubectl delete pod NAME`",
            ),
            Self::CapturesNothing => (
                "captures-nothing",
                "the capture rules capture nothing",
                "`-i '*'` and `-b '*'` beside the pod's other options capture all traffic; pods that are not to be captured need no rules",
            ),
            Self::Ipv4NotCaptured => (
                "ipv4-not-captured",
                "IPv4 is not captured",
                "`istio-iptables` with the pod's options writes the rules again; `--ip-family ipv6` confirms IPv6 only",
            ),
            Self::Dormant => {
                ("dormant-table", "a table with capture rules is switched off", "`nft add table {}`")
            }
            Self::Lockdown => (
                "lockdown",
                "guard drops new connections until the capture rules are live again",
                "`istio-iptables` with the pod's options writes the rules and ends it, `istio-iptables cleanup` removes both",
            ),
            Self::LoopbackUnusable => {
                ("loopback-unusable", "captured connections end at the interface lo", "`{}`")
            }
            Self::ProxyNotListening => (
                "proxy-not-listening",
                "nothing listens on a port of the proxy",
                "start the proxy: `ss -lntu` lists the listeners, `kubectl logs POD -c istio-proxy` says why it has none",
            ),
            Self::BrokenChain => (
                "broken-chain",
                "chains of the capture rules are damaged",
                "`istio-iptables` with the pod's options repairs them; `istio-iptables check` derives these",
            ),
            Self::TwoBackends => (
                "two-backends",
                "capture rules of two backends are live",
                "`istio-iptables` with the pod's options deletes all rules but those of one backend; it needs the tools of both",
            ),
            Self::ProxyListener => (
                "proxy-listener",
                "a listener of the proxy does not take what the rules send",
                "`ss -lntupe` lists the listeners with their users; `istio-iptables check` names the options of the rules",
            ),
            Self::TrafficLost => ("traffic-lost", "traffic is lost", "{}"),
            Self::DnsLoop => (
                "dns-loop",
                "DNS loops between the proxy and a resolver in the pod",
                "name its servers in `/etc/resolv.conf`, or run it as a uid or gid of the proxy",
            ),
            Self::ForeignRule => ("foreign-rule", "a foreign rule decides over captured traffic", "{}"),
            Self::ForeignChain => {
                ("foreign-chain", "a foreign base chain decides over captured traffic", "{}")
            }
            Self::PolicyRouting => ("policy-routing", "policy routing keeps packets from the proxy", "{}"),
            Self::TproxyMark => ("tproxy-mark", "a foreign rule changes marks of TPROXY", "{}"),
            Self::InterfaceDrops => ("interface-setting", "an interface drops captured connections", "{}"),
            Self::ForwardedTraffic => (
                "forwarded-traffic",
                "traffic that the pod forwards is captured as inbound",
                "in REDIRECT mode `--kube-virt-interfaces {}` (`-k`) captures it as outbound, `--istio-exclude-interfaces` (`-c`) not at all",
            ),
            Self::AppAsProxy => (
                "app-as-proxy",
                "the app runs as a user of the proxy",
                "give the app another `runAsUser` and `runAsGroup` (`securityContext`), or the proxy another uid: `--proxy-uid`",
            ),
            Self::Ipv6NotCaptured => (
                "ipv6-not-captured",
                "IPv6 is not captured",
                "`--dual-stack` (`ISTIO_DUAL_STACK=true`) beside the pod's other options; `--ip-family ipv4` confirms IPv4 only",
            ),
            Self::WideExclusion => (
                "wide-exclusion",
                "half of IPv4 or more is excluded from capture",
                "list the ranges that the app calls directly in `--istio-service-exclude-cidr` (`-x`)",
            ),
            Self::DnsNotCaptured => (
                "dns-not-captured",
                "DNS is not captured",
                "`--redirect-dns` beside the pod's other options (`ISTIO_META_DNS_CAPTURE=true` in `proxyMetadata`)",
            ),
            Self::DnsTranslated => (
                "dns-translated",
                "DNS queries go elsewhere before the rules",
                "`--capture-all-dns` beside the pod's other options captures them there",
            ),
            Self::NoRoute => (
                "no-route",
                "the pod has no default route",
                "`ip route` and `ip -6 route` list the routes, which the CNI plugin of the cluster writes",
            ),
            Self::AppNotListening => (
                "app-not-listening",
                "nothing listens on a port of the app",
                "let the app listen on that port at the pod's address, name its port (`ss -lntp` lists the listeners), or exclude this one: `--istio-local-exclude-ports` (`-d`)",
            ),
            Self::AppListener => (
                "app-listener",
                "a listener of the app does not take what the proxy sends",
                "bind its socket to no interface (`SO_BINDTODEVICE`), or exclude the port: `--istio-local-exclude-ports` (`-d`)",
            ),
            Self::OlderConnections => (
                "older-connections",
                "open connections are older than capture",
                "restart what holds them, or wait for their end; `ss -tnp` names the process",
            ),
            Self::NotEvaluated => (
                "not-evaluated",
                "filters beside the rules may decide",
                "`tc filter show dev IFACE ingress`, `ip xfrm policy` and `bpftool net` list what the cause names",
            ),
            Self::KeptRules => (
                "kept-rules",
                "rules of an earlier run are kept",
                "`iptables-save | grep ISTIO` lists them; delete those that are not needed",
            ),
        };
        Spec { id, title, fix }
    }
}
