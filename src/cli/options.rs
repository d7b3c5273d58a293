//! The one table of options. The command line, the environment reader, the config file reader, `--help` and
//! the documentation are all made from it.

use std::fmt;

use super::spec::{Heading, Kind, OptionSpec, Variables};

macro_rules! options {
    ($($key:ident: $help:literal, $name:literal $kind:ident $heading:ident $(. $method:ident($argument:expr))*;)*) => {
        /// Every option there is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Key {
            $(#[doc = $help] $key,)*
        }

        impl Key {
            /// The options, in the order of `--help`.
            pub const ALL: &'static [Self] = &[$(Self::$key,)*];

            /// The row of the option in the table.
            #[must_use]
            pub const fn spec(self) -> &'static OptionSpec {
                match self {
                    $(Self::$key => {
                        const SPEC: OptionSpec =
                            OptionSpec::new($name, Kind::$kind, Heading::$heading, $help)$(.$method($argument))*;
                        &SPEC
                    })*
                }
            }
        }
    };
}

options! {
    EnvoyPort: "Port to which outbound TCP is redirected",
        "envoy-port" Number Proxy.short('p').default("15001").from(Variables::None).takes("PORT");
    InboundCapturePort: "Port to which inbound TCP is redirected",
        "inbound-capture-port" Number Proxy.short('z').default("15006").takes("PORT");
    InboundTunnelPort: "HBONE tunnel port; traffic to it is not redirected in REDIRECT mode",
        "inbound-tunnel-port" Number Proxy.short('e').default("15008").takes("PORT");
    ProxyUid: "User ids whose traffic is not captured; default: the uid of $ENVOY_USER, otherwise 1337",
        "proxy-uid" List Proxy.short('u').takes("UIDS");
    ProxyGid: "Group ids whose traffic is not captured; default: the same numbers as --proxy-uid",
        "proxy-gid" List Proxy.short('g').takes("GIDS");
    EnvoyUser: "User whose uid is used when --proxy-uid is unset",
        "ENVOY_USER" Text Proxy.default("istio-proxy").from(Variables::Only("ENVOY_USER")).takes("NAME");

    InboundInterceptionMode: "How inbound connections reach the proxy: REDIRECT or TPROXY",
        "istio-inbound-interception-mode" Text Inbound.short('m').default("REDIRECT").takes("MODE")
        .words(&["REDIRECT", "TPROXY"])
        .annotation("sidecar.istio.io/interceptionMode");
    InboundTproxyMark: "Mark of inbound packets in TPROXY mode; not 1338",
        "istio-inbound-tproxy-mark" Number Inbound.short('t').default("1337").takes("MARK");
    InboundTproxyRouteTable: "Routing table for marked packets in TPROXY mode; not 0 or 253 to 255",
        "istio-inbound-tproxy-route-table" Number Inbound.short('r').default("133").takes("TABLE");
    InboundPorts: "Inbound ports to capture; `*` for all; default: none",
        "istio-inbound-ports" List Inbound.short('b').takes("PORTS")
        .annotation("traffic.sidecar.istio.io/includeInboundPorts");
    LocalExcludePorts: "Inbound ports to exclude; only with -b '*'",
        "istio-local-exclude-ports" List Inbound.short('d').takes("PORTS")
        .annotation("traffic.sidecar.istio.io/excludeInboundPorts");

    ServiceCidr: "Outbound ranges to capture; `*` for all; default: none",
        "istio-service-cidr" List Outbound.short('i').takes("CIDRS")
        .annotation("traffic.sidecar.istio.io/includeOutboundIPRanges");
    ServiceExcludeCidr: "Outbound ranges to exclude; takes precedence over -i",
        "istio-service-exclude-cidr" List Outbound.short('x').takes("CIDRS")
        .annotation("traffic.sidecar.istio.io/excludeOutboundIPRanges");
    OutboundPorts: "Outbound ports to capture regardless of the range",
        "istio-outbound-ports" List Outbound.short('q').takes("PORTS")
        .annotation("traffic.sidecar.istio.io/includeOutboundPorts");
    LocalOutboundPortsExclude: "Outbound TCP and UDP ports to exclude",
        "istio-local-outbound-ports-exclude" List Outbound.short('o').takes("PORTS")
        .annotation("traffic.sidecar.istio.io/excludeOutboundPorts");
    OutboundOwnerGroups: "Groups (names or ids) whose outbound traffic is captured; `*` for all",
        "ISTIO_OUTBOUND_OWNER_GROUPS" List Outbound.default("*")
        .from(Variables::Only("ISTIO_OUTBOUND_OWNER_GROUPS")).takes("GROUPS");
    OutboundOwnerGroupsExclude: "Groups to exclude; only if all groups are captured",
        "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE" List Outbound
        .from(Variables::Only("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE")).takes("GROUPS");
    OutboundIpv4LoopbackCidr: "IPv4 loopback range of the application itself, not redirected to the proxy",
        "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR" Text Outbound.default("127.0.0.1/32")
        .from(Variables::Only("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR")).takes("CIDR");
    DropInvalid: "Drop packets in conntrack state INVALID",
        "drop-invalid" Boolean Outbound.from(Variables::DerivedAfter("INVALID_DROP"));

    RedirectDns: "Redirect DNS queries to the pod's name servers to the proxy's port 15053",
        "redirect-dns" Boolean Dns.from(Variables::DerivedAfter("ISTIO_META_DNS_CAPTURE"));
    CaptureAllDns: "Capture all traffic to port 53, not only queries to the name servers in /etc/resolv.conf",
        "capture-all-dns" Boolean Dns;

    ExcludeInterfaces: "Interfaces whose inbound and outbound traffic is not captured",
        "istio-exclude-interfaces" List Interfaces.short('c').takes("NAMES")
        .annotation("traffic.sidecar.istio.io/excludeInterfaces");
    KubeVirtInterfaces: "Virtual interfaces (KubeVirt) whose inbound traffic is treated as outbound",
        "kube-virt-interfaces" List Interfaces.short('k').alias("reroute-virtual-interfaces").takes("NAMES")
        .annotation("istio.io/reroute-virtual-interfaces");

    DualStack: "Also capture IPv6 if the pod has an IPv6 address",
        "dual-stack" Boolean Families.from(Variables::DerivedAfter("ISTIO_DUAL_STACK"));
    IpFamily: "IP families that get rules: auto (IPv4 only if the pod has an IPv4 address, otherwise both), ipv4, ipv6 or dual",
        "ip-family" Text Families.default("auto").from(Variables::Prefixed).takes("FAMILY")
        .words(&["auto", "ipv4", "ipv6", "dual"]);

    Backend: "Backend for the rules: auto, iptables, iptables-nft, iptables-legacy or nftables (native, without tools)",
        "backend" Text Backend.default("auto").from(Variables::Prefixed).takes("BACKEND")
        .words(&["auto", "iptables", "iptables-nft", "iptables-legacy", "nftables"]);
    ForceIptablesBinary: "nft or legacy: the same as --backend iptables-nft or iptables-legacy",
        "force-iptables-binary" Text Backend.takes("VARIANT").words(&["nft", "legacy"]);
    NativeNftables: "The same as --backend nftables",
        "native-nftables" Boolean Backend;

    DryRun: "Print the planned changes without applying them",
        "dry-run" Boolean Run.short('n');
    DryRunFilePath: "File to which a dry run also writes the rules",
        "DRY_RUN_FILE_PATH" Text Run.from(Variables::Only("DRY_RUN_FILE_PATH")).takes("PATH");
    CleanupOnly: "Remove all rules, routes and addresses of earlier runs",
        "cleanup-only" Boolean Run;
    KeepConnections: "Keep redirected connections open during clean-up; while they are open, the chain ISTIO_ESTABLISHED remains, which captures nothing",
        "keep-connections" Boolean Run.from(Variables::Prefixed);
    ForceApply: "Rewrite the rules even if they are already correct",
        "force-apply" Boolean Run;
    Reconcile: "Accepted for compatibility: every run reconciles the rules",
        "reconcile" Boolean Run;
    SkipRuleApply: "Do not change rules; for use with --run-validation",
        "skip-rule-apply" Boolean Run;
    Verify: "Read all rules back after the run and compare them",
        "verify" Boolean Run.from(Variables::Prefixed);
    RulesFile: "File in which to keep the written IPv4 rules; IPv6 rules go to PATH.v6",
        "rules-file" Text Run.from(Variables::Prefixed).takes("PATH");
    NetworkNamespace: "Network namespace to configure, for example /proc/PID/ns/net",
        "network-namespace" Text Run.takes("PATH");
    Pid: "Process whose network namespace to configure; short for --network-namespace /proc/PID/ns/net",
        "pid" Number Run.from(Variables::None).takes("PID");
    CniMode: "Run on the host for a pod's network namespace, with a lock per pod",
        "cni-mode" Boolean Run;
    Config: "JSON file with options by their long names; `-` reads standard input; flags and variables take precedence",
        "config" Text Run.from(Variables::Prefixed).takes("FILE");

    RunValidation: "Probe whether traffic is captured; exit 126 if it is not",
        "run-validation" Boolean Validation;
    IptablesProbePort: "Destination port of the probe",
        "iptables-probe-port" Number Validation.default("15002").takes("PORT");
    ProbeTimeout: "Timeout of the probe, such as 5s or 1m30s",
        "probe-timeout" Text Validation.default("5s").takes("DURATION");

    LogOutputLevel: "Level, or SCOPE:LEVEL pairs (scopes `default` and `all`): none, fatal, error, warn, info, debug",
        "log_output_level" Text Logging.default("default:info").from(Variables::None).takes("LEVELS")
        .words(&["none", "fatal", "error", "warn", "info", "debug"])
        .annotation("sidecar.istio.io/agentLogLevel");
    LogAsJson: "The same as --log-format json",
        "log_as_json" Boolean Logging.from(Variables::None);
    LogFormat: "text or json (one object per line); takes precedence over --log_as_json",
        "log-format" Text Logging.default("text").from(Variables::Prefixed).takes("FORMAT").words(&["text", "json"]);
}

impl Key {
    /// The option with this key in a config file: the long flag name, its alias, or the variable's name where
    /// there is no flag.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| {
            let spec = key.spec();
            spec.name == name || spec.alias == Some(name)
        })
    }
}

/// The usual notation: `--istio-inbound-ports (-b)`, or the variable's name.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.spec();
        match (spec.has_flag(), spec.short) {
            (false, _) => f.write_str(spec.name),
            (true, None) => write!(f, "--{}", spec.name),
            (true, Some(short)) => write!(f, "--{} (-{short})", spec.name),
        }
    }
}

/// Istio's other log flags: they take a value, and nothing is done with it.
pub(super) const IGNORED: [&str; 4] = ["log_target", "log_caller", "log_stacktrace_level", "vklog"];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_name_is_used_twice() {
        let mut longs: HashSet<&str> = IGNORED.into_iter().collect();
        let mut shorts = HashSet::new();
        let mut variables = HashSet::new();
        for key in Key::ALL {
            let spec = key.spec();
            assert!(longs.insert(spec.name), "{}", spec.name);
            assert!(spec.alias.is_none_or(|alias| longs.insert(alias)), "{key}");
            assert!(spec.short.is_none_or(|short| shorts.insert(short)), "{key}");
            for name in spec.variable_names() {
                assert!(variables.insert(name.clone()), "{name}");
            }
        }
    }

    #[test]
    fn the_order_of_variables_is_istio_s() {
        let names = |key: Key| key.spec().variable_names().join(" ");
        assert_eq!(names(Key::RedirectDns), "ISTIO_META_DNS_CAPTURE REDIRECT_DNS");
        assert_eq!(names(Key::DropInvalid), "INVALID_DROP DROP_INVALID");
        assert_eq!(names(Key::DualStack), "ISTIO_DUAL_STACK DUAL_STACK");
        assert_eq!(names(Key::EnvoyPort), "");
        assert_eq!(names(Key::InboundPorts), "ISTIO_INBOUND_PORTS");
        assert_eq!(names(Key::Config), "ISTIO_IPTABLES_CONFIG");
    }

    #[test]
    fn options_of_a_group_are_adjacent() {
        let mut seen = Vec::new();
        for key in Key::ALL {
            let heading = key.spec().heading;
            if seen.last() != Some(&heading) {
                assert!(!seen.contains(&heading), "{key} is not in the group {}", heading.title());
                seen.push(heading);
            }
        }
    }
}
