//! Findings: what may keep packets of the mesh from where they belong, as values until they are printed.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

use crate::model::{Backend, Family, PolicyRule, Variant};
use crate::text::{one_line, shell_words};

/// Something that decides over packets, identified without its words in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A rule of netfilter.
    Rule(RuleId),
    /// A base chain as a whole.
    Chain {
        /// The table, as in [`RuleId::table`].
        table: String,
        /// The name of the chain.
        chain: String,
    },
    /// The policy of a base chain, which ends what no rule of it does.
    Policy {
        /// The table, as in [`RuleId::table`].
        table: String,
        /// The name of the chain.
        chain: String,
    },
    /// An interface, by its name.
    Interface(String),
    /// A policy rule.
    PolicyRule(PolicyRule),
    /// A route, in the words of `ip route`.
    Route(String),
    /// A state of the pod, by the sentence about it.
    Condition(String),
}

/// A rule and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleId {
    /// The table: `nat`; `iptables-legacy nat` for another variant than that of our rules; `ip nat` in
    /// nftables.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The words of the rule, which is the only one of the chain with these words, or like the others.
    pub words: String,
}

impl RuleId {
    /// The command that deletes it. In a table of nftables that takes its handle.
    fn deletion(&self, family: Option<Family>, variant: Option<Variant>) -> String {
        let Self { table, chain, words } = self;
        let [chain, words] = [chain, words].map(|text| shell_words(text));
        let of_v6 = |tool: &str| {
            if family == Some(Family::V6) { tool.replacen("ip", "ip6", 1) } else { tool.to_owned() }
        };
        match table.split_once(' ') {
            None => {
                // Where both variants are installed, the plain name is that of the nft variant.
                let legacy = if variant == Some(Variant::Legacy) { "-legacy" } else { "" };
                format!("`{}{legacy} -t {table} -D {chain} {words}`", of_v6("iptables"))
            }
            Some((tool, table)) if Variant::ALL.iter().any(|variant| variant.to_string() == tool) => {
                format!("`{} -t {table} -D {chain} {words}`", of_v6(tool))
            }
            Some(_) => format!(
                "`nft -a list chain {table} {chain}` lists the rule's handle N; `nft delete rule {table} {chain} handle N`"
            ),
        }
    }
}

impl Subject {
    /// Whether this is a chain, and the other one its policy or a rule in it, where `backend` holds ours:
    /// rules of its own tables are named without it.
    fn has(&self, other: &Self, backend: Backend) -> bool {
        let Self::Chain { table, chain } = self else { return false };
        let Some((in_table, in_chain)) = other.place() else { return false };
        let of_iptables = || table.strip_prefix("ip ").or_else(|| table.strip_prefix("ip6 "));
        let is_in_table =
            table == in_table || backend == Variant::Nft.into() && of_iptables() == Some(in_table);
        is_in_table && chain == in_chain
    }

    /// Whether this is a policy for packets of one family.
    #[must_use]
    pub fn is_policy_of_family(&self) -> bool {
        let Self::Policy { table, .. } = self else { return false };
        !matches!(table.split_once(' '), Some(("inet", _)))
    }

    /// The table and the chain of a rule or a policy.
    const fn place(&self) -> Option<(&str, &str)> {
        match self {
            Self::Rule(RuleId { table, chain, .. }) | Self::Policy { table, chain } => {
                Some((table.as_str(), chain.as_str()))
            }
            Self::Chain { .. }
            | Self::Interface(_)
            | Self::PolicyRule(_)
            | Self::Route(_)
            | Self::Condition(_) => None,
        }
    }

    /// The command that removes it, if it is something that can be removed.
    #[must_use]
    pub fn removal(&self, family: Option<Family>, variant: Option<Variant>) -> Option<String> {
        match self {
            Self::Rule(rule) => Some(rule.deletion(family, variant)),
            Self::Chain { table, chain } => {
                Some(format!("`nft list chain {table} {chain}` shows its rules: delete or limit them"))
            }
            Self::PolicyRule(rule) => {
                let tool = if family == Some(Family::V6) { "ip -6" } else { "ip" };
                let words = rule.to_string().replacen(':', "", 1);
                Some(format!("`{tool} rule del pref {}`", shell_words(&words)))
            }
            Self::Route(_) => {
                let tool = if family == Some(Family::V6) { "ip -6" } else { "ip" };
                Some(format!(
                    "`{tool} route show table all` lists the routes: correct the one that the cause names"
                ))
            }
            Self::Policy { .. } | Self::Interface(_) | Self::Condition(_) => None,
        }
    }
}

/// A kind of finding, the most harmful first. The order is that of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// No rule of ours is there.
    NoRules,
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
    pub const ALL: [Self; 27] = [
        Self::NoRules,
        Self::Ipv4NotCaptured,
        Self::Dormant,
        Self::Lockdown,
        Self::LoopbackUnusable,
        Self::ProxyNotListening,
        Self::BrokenChain,
        Self::TwoBackends,
        Self::ProxyListener,
        Self::TrafficLost,
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
                "`istio-iptables` with the pod's options writes them; in a cluster: `kubectl delete pod NAME`",
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
                "`istio-iptables --dual-stack` (`ISTIO_DUAL_STACK=true`); `--ip-family ipv4` confirms IPv4 only",
            ),
            Self::WideExclusion => (
                "wide-exclusion",
                "half of IPv4 or more is excluded from capture",
                "list the ranges that the app calls directly in `--istio-service-exclude-cidr` (`-x`)",
            ),
            Self::DnsNotCaptured => (
                "dns-not-captured",
                "DNS is not captured",
                "`--redirect-dns` (`ISTIO_META_DNS_CAPTURE=true` in `proxyMetadata`)",
            ),
            Self::DnsTranslated => (
                "dns-translated",
                "DNS queries go elsewhere before the rules",
                "`--capture-all-dns` captures them there",
            ),
            Self::NoRoute => (
                "no-route",
                "the pod has no default route",
                "`ip route` and `ip -6 route` list the routes, which the CNI plugin of the cluster writes",
            ),
            Self::AppNotListening => (
                "app-not-listening",
                "nothing listens on a port of the app",
                "let the app listen on that port at the pod's address, or name its port: `ss -lntp` lists the listeners",
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

/// A finding, for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding.
    pub problem: Problem,
    /// What is wrong, in one sentence.
    pub cause: String,
    /// What the log adds to the cause, with the characters that separate both; empty if the cause says all.
    pub advice: String,
    /// What the command of the fix is about, as [`Spec::fix`] takes it.
    pub subject: String,
    /// What causes it.
    pub about: Vec<Subject>,
    /// The family that it is about, if that is one.
    pub family: Option<Family>,
    /// The variant of iptables that holds the rules in tables without one in their name.
    pub variant: Option<Variant>,
}

impl Finding {
    /// A finding whose cause says all.
    #[must_use]
    pub fn new(problem: Problem, cause: impl Into<String>) -> Self {
        Self {
            problem,
            cause: cause.into(),
            advice: String::new(),
            subject: String::new(),
            about: Vec::new(),
            family: None,
            variant: None,
        }
    }

    /// Adds the family.
    #[must_use]
    pub fn family(self, family: Family) -> Self {
        Self { family: Some(family), ..self }
    }

    /// Adds what the log says about the fix.
    #[must_use]
    pub fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    /// Adds what the command of the fix is about.
    #[must_use]
    pub fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), ..self }
    }

    /// Adds what causes it.
    #[must_use]
    pub fn about(self, about: impl IntoIterator<Item = Subject>) -> Self {
        Self { about: about.into_iter().collect(), ..self }
    }

    /// Whether one of the subjects is the cause.
    #[must_use]
    pub fn is_about_any(&self, subjects: &[Subject]) -> bool {
        subjects.iter().any(|subject| self.about.contains(subject))
    }

    /// Whether the cause is a rule or the policy of the chain that the other finding is about as a whole:
    /// what is known of a rule is worth more than what its chain may do.
    #[must_use]
    pub fn is_within(&self, other: &Self, backend: Backend) -> bool {
        let has_rule = |chain: &Subject| self.about.iter().any(|about| chain.has(about, backend));
        let is_of_family = other.family.is_none() || other.family == self.family;
        is_of_family && !other.about.is_empty() && other.about.iter().all(has_rule)
    }

    /// The fix, with its command: that of the kind, or the one that deletes the first rule that is the cause.
    #[must_use]
    pub fn fix(&self) -> String {
        let Spec { fix, .. } = self.problem.spec();
        let subject = match &self.subject {
            none if none.is_empty() => self
                .about
                .iter()
                .find_map(|about| about.removal(self.family, self.variant))
                .unwrap_or_default(),
            given => given.clone(),
        };
        match fix.split_once("{}") {
            None => fix.to_owned(),
            Some(_) if subject.is_empty() => {
                "istio-iptables explain --live --to ADDRESS:PORT shows the rules that such a packet meets"
                    .to_owned()
            }
            Some((before, after)) => one_line(&format!("{before}{subject}{after}")).into_owned(),
        }
    }
}

/// The cause, and the advice of the log.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.cause, self.advice)
    }
}

/// The findings as problems: the most harmful kind first, each cause once. The commands of fixes are for
/// rules that `backend` holds.
#[must_use]
pub fn by_harm(findings: impl IntoIterator<Item = Finding>, backend: Backend) -> Vec<Finding> {
    let variant = if let Backend::Iptables(variant) = backend { Some(variant) } else { None };
    let mut sorted: Vec<Finding> = Vec::new();
    for finding in findings {
        if !sorted.iter().any(|known| known.cause == finding.cause) {
            let at = sorted.partition_point(|known| known.problem <= finding.problem);
            sorted.insert(at, Finding { variant, ..finding });
        }
    }
    sorted
}

/// The first line of a report with problems, at most 100 characters.
#[must_use]
pub fn verdict(problems: &[Finding]) -> Option<String> {
    let first = problems.first()?.problem.spec().title;
    Some(match problems.len() {
        1 => format!("1 problem: {first}"),
        many => format!("{many} problems, first: {first}"),
    })
}

/// The numbered list of a report; empty without problems.
#[must_use]
pub fn list(problems: &[Finding]) -> String {
    let mut text = String::new();
    if !problems.is_empty() {
        text.push_str("\nProblems\n");
    }
    for (number, finding) in problems.iter().enumerate() {
        let (number, id) = (number + 1, finding.problem.spec().id);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{number:>2}. {id}: {}\n    fix: {}", one_line(&finding.cause), finding.fix());
    }
    text
}

/// The list of a report, for programs.
#[must_use]
pub fn as_json(problems: &[Finding]) -> Value {
    let of = |finding: &Finding| json!({ "id": finding.problem.spec().id, "cause": one_line(&finding.cause), "fix": finding.fix() });
    problems.iter().map(of).collect()
}
