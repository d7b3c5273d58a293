//! Why a packet is captured or not, in words: the rule's reason, or which option lacks it.

use std::fmt;

use super::broken_chains::{BrokenChain, Listed};
use super::packet::Packet;
use super::rules::Rules;
use super::walk::{Verdict, Walk};
use super::{LiveState, Pod};
use crate::cli::{Key, Origin};
use crate::config::{AsOptions, CaptureConfig, ConnectionState, Dns, InboundPorts, OutboundRanges, Traffic};
use crate::live_rules::Effect;
use crate::model::{DNS_PORT, Families, Family, Transport, Why};
use crate::text::list_shown;

/// The reason for a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// One sentence.
    pub sentence: String,
    /// The option that it follows from.
    pub option: Option<Cause>,
}

/// An option, with the value that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The option.
    pub key: Key,
    /// The value that was given for rules that are not live, and its source, if it is not the default.
    pub given: Option<(String, Origin)>,
    /// The value by the live rules, if they were read from the kernel: what they were made from is not known.
    pub live: Option<String>,
}

impl Cause {
    fn of(key: Key, pod: &Pod<'_>) -> Self {
        let given = pod.given.iter().find(|given| given.key == key);
        let given = given.map(|given| (given.text.clone(), given.origin.clone()));
        if pod.live.is_none() {
            return Self { key, given, live: None };
        }
        // With other usual families their option is among them.
        let usual = if pod.config.families == Families::Both { Families::V4 } else { Families::Both };
        let options = AsOptions::of(pod.config, usual);
        let of = |key| options.iter().find(|(known, _)| *known == key).map(|(_, text)| text);
        // The groups are not among them where they are the users.
        let same = || of(Key::ProxyUid).filter(|_| key == Key::ProxyGid);
        let live = of(key).or_else(same).unwrap_or(key.spec().default).to_owned();
        Self { key, given: None, live: Some(live) }
    }

    /// The value that counts.
    #[must_use]
    pub fn value(&self) -> &str {
        let given = || self.given.as_ref().map(|(text, _)| text.as_str());
        self.live.as_deref().or_else(given).unwrap_or(self.key.spec().default)
    }

    /// The annotation of a pod from which an injector sets the option.
    #[must_use]
    pub const fn annotation(&self) -> Option<&'static str> {
        self.key.spec().annotation
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = self.key.spec().default;
        match &self.given {
            _ if self.live.is_some() => write!(f, "{}", self.key)?,
            Some((text, Origin::Flag(_))) => write!(f, "{} is {}", self.key, list_shown(text))?,
            Some((text, origin)) => write!(f, "{} is {}, from the {origin}", self.key, list_shown(text))?,
            None if default.is_empty() => write!(f, "{} is not given", self.key)?,
            None => write!(f, "{} is {default}, the default", self.key)?,
        }
        self.annotation().map_or(Ok(()), |annotation| write!(f, "; pod annotation: {annotation}"))
    }
}

/// The reason for the verdict of a walk, and the port that a packet has when it is dropped, which rules of a
/// firewall test.
pub(super) fn reason(packet: &Packet, walk: &Walk<'_>, pod: &Pod<'_>) -> Reason {
    let mut reason = of_verdict(packet, walk, pod);
    let port = walk.end.destination.port();
    if walk.verdict == Verdict::Dropped && !walk.is_invalid && port != packet.destination.port() {
        reason.sentence += &format!(": by then it is for port {port}, to which it was redirected");
    }
    reason
}

fn of_verdict(packet: &Packet, walk: &Walk<'_>, pod: &Pod<'_>) -> Reason {
    if let Some(sentence) = &walk.because {
        return Reason { sentence: sentence.clone(), option: None };
    }
    if packet.translated_from.is_some() && walk.verdict == Verdict::NotCaptured {
        let to = packet.destination;
        let sentence = format!("a BPF program at its socket sends it to {to} before the rules");
        return Reason { sentence, option: Some(Cause::of(Key::CaptureAllDns, pod)) };
    }
    let decisive = walk.decisive().map(|step| (step, step.rule.why));
    let (sentence, key) = match (decisive, walk.verdict) {
        (Some((_, Some(why))), _) => (why.sentence().to_owned(), option(why)),
        (Some((step, None)), _) if step.is_of_lockdown() => (
            "the lockdown of guard drops it: the capture rules are not as written, and would capture it"
                .to_owned(),
            None,
        ),
        (Some((step, None)), _) => {
            let (table, chain) = (step.table, step.chain);
            let is_queue = matches!(*step.rule.rule.effect(), Effect::Queues { .. });
            let by = if is_queue { " (a program at that queue; without one it is dropped)" } else { "" };
            (format!("a foreign rule in {table} {chain} decides: {}{by}", step.rule.shown()), None)
        }
        (_, Verdict::Misrouted) => (
            "its mark routes it to the pod itself, which has no such connection".to_owned(),
            Some(Key::InboundTproxyMark),
        ),
        (None, Verdict::LikeItsConnection) => (
            "nat rules see the first packet of a connection only; what they decided holds for the others"
                .to_owned(),
            None,
        ),
        (None, _) => no_rule(packet, pod),
    };
    Reason { sentence, option: key.map(|key| Cause::of(key, pod)) }
}

/// Why no rule is for the packet.
fn no_rule(packet: &Packet, pod: &Pod<'_>) -> (String, Option<Key>) {
    if let Some(live) = &pod.live {
        let has_ours = live.rules.get(&packet.family()).is_some_and(Rules::has_ours);
        if !has_ours {
            let sentence = format!("no capture rule is live ({})", packet.family());
            if let Some(dormant) = live.dormant.first() {
                return (format!("{sentence}: {dormant}"), None);
            }
            let other = live.rules.iter().find(|(_, rules)| rules.has_ours());
            return match other {
                Some((other, _)) => (format!("{sentence}, only for {other}"), Some(Key::IpFamily)),
                None => (sentence, None),
            };
        }
        if is_expected(packet, live, pod.config) {
            return (no_live_rule(packet, live, pod.config), None);
        }
    }
    let config = pod.config;
    let traffic = &config.traffic;
    if !config.families.contains(packet.family()) {
        let (what, key) = (packet.family(), Key::IpFamily);
        return (format!("{what} traffic is not captured in this pod: {} only", config.families), Some(key));
    }
    if packet.state == ConnectionState::Invalid {
        return (
            "connection tracking gives it to no connection, and nat translates only what it can".to_owned(),
            Some(Key::DropInvalid),
        );
    }
    let is_dns = packet.destination.port() == DNS_PORT.number();
    match (packet.transport, packet.is_inbound) {
        (Transport::Udp, false) if is_dns => dns(packet, &config.dns),
        (Transport::Udp, _) => ("UDP is not captured, apart from DNS queries of the pod".to_owned(), None),
        (Transport::Tcp, true) => match &traffic.inbound {
            InboundPorts::None => ("no inbound port is captured".to_owned(), Some(Key::InboundPorts)),
            InboundPorts::Only(_) | InboundPorts::All { .. } => (
                format!("port {} is not among the captured inbound ports", packet.destination.port()),
                Some(Key::InboundPorts),
            ),
        },
        (Transport::Tcp, false) => {
            let sentence = match &traffic.outbound.ranges {
                OutboundRanges::None if traffic.outbound.ports.is_empty() => {
                    "no outbound range is captured".to_owned()
                }
                OutboundRanges::None | OutboundRanges::Only(_) | OutboundRanges::All => {
                    format!("{} is in no captured outbound range", packet.destination.ip())
                }
            };
            (sentence, Some(Key::ServiceCidr))
        }
    }
}

/// The rules do not work, and which of them are missing, as far as that is known.
fn no_live_rule(packet: &Packet, live: &LiveState, config: &CaptureConfig) -> String {
    let family = packet.family();
    let broken = live.broken_chains(config, family);
    let broken = (!broken.is_empty()).then(|| Listed(&broken).to_string());
    let causes: Vec<String> = live.dormant.iter().map(ToString::to_string).chain(broken).collect();
    let because = if causes.is_empty() { String::new() } else { format!(": {}", causes.join("; ")) };
    format!("no live rule captures it ({family}){because}")
}

/// Whether the live rules would capture the packet if they worked, as far as that is known.
pub(super) fn is_expected(packet: &Packet, live: &LiveState, config: &CaptureConfig) -> bool {
    packet.transport == Transport::Tcp
        && (is_meant(packet, config) || is_perhaps_deleted(packet, live, config))
}

/// Whether rules for a packet's port or address are live: then they do not work, a jump to them is missing
/// for instance.
fn is_meant(packet: &Packet, config: &CaptureConfig) -> bool {
    let (traffic, to) = (&config.traffic, packet.destination);
    if packet.is_inbound {
        return match &traffic.inbound {
            InboundPorts::All { .. } => true,
            InboundPorts::None => false,
            InboundPorts::Only(ports) => ports.iter().any(|port| port.number() == to.port()),
        };
    }
    let is_listed = traffic.outbound.ports.iter().any(|port| port.number() == to.port());
    is_listed
        || match &traffic.outbound.ranges {
            OutboundRanges::All => true,
            OutboundRanges::None => false,
            OutboundRanges::Only(ranges) => ranges.iter().any(|range| range.contains(to.ip())),
        }
}

/// Whether no rule of its direction captures anything, and rules are missing: those that did may be among
/// them.
fn is_perhaps_deleted(packet: &Packet, live: &LiveState, config: &CaptureConfig) -> bool {
    let Traffic { inbound, outbound, .. } = &config.traffic;
    let is_none = match packet.is_inbound {
        true => *inbound == InboundPorts::None,
        false => outbound.ports.is_empty() && !outbound.ranges.has_any(packet.family()),
    };
    is_none && live.broken_chains(config, packet.family()).iter().any(BrokenChain::is_of_capture)
}

fn dns(packet: &Packet, dns: &Dns) -> (String, Option<Key>) {
    match (dns, packet.family()) {
        (Dns::Servers { v4, .. }, Family::V4) => other_server(packet, v4),
        (Dns::Servers { v6, .. }, Family::V6) => other_server(packet, v6),
        (Dns::Off | Dns::All, _) => (
            "no DNS query over UDP is captured: --redirect-dns captures those to the name servers in /etc/resolv.conf, \
             --capture-all-dns all of them"
                .to_owned(),
            Some(Key::RedirectDns),
        ),
    }
}

/// DNS is captured, but not to this server.
fn other_server(packet: &Packet, captured: &[impl fmt::Display]) -> (String, Option<Key>) {
    let captured: Vec<String> = captured.iter().map(ToString::to_string).collect();
    let captured = if captured.is_empty() { "none".to_owned() } else { captured.join(", ") };
    let sentence = format!(
        "{} is not among the name servers whose queries are captured ({captured}): --capture-all-dns captures those to any server",
        packet.destination.ip()
    );
    (sentence, Some(Key::CaptureAllDns))
}

/// The option that a rule comes from.
const fn option(why: Why) -> Option<Key> {
    Some(match why {
        Why::ExcludedInterfaceIn | Why::ExcludedInterfaceOut => Key::ExcludeInterfaces,
        Why::VirtualInterfaceLocal | Why::VirtualInterfaceOutbound => Key::KubeVirtInterfaces,
        Why::InvalidPacket | Why::DropInvalid => Key::DropInvalid,
        Why::TunnelPort => Key::InboundTunnelPort,
        Why::ToOutboundPort => Key::EnvoyPort,
        Why::ToInboundPort => Key::InboundCapturePort,
        Why::InboundTraffic | Why::EveryInboundPort | Why::IncludedInboundPort => Key::InboundPorts,
        Why::ExcludedInboundPort => Key::LocalExcludePorts,
        Why::KnownInboundConnection
        | Why::TransparentProxy
        | Why::DivertMark
        | Why::DivertAccept
        | Why::SaveMark
        | Why::MarkedLoopback
        | Why::ProxyLoopbackMark
        | Why::RestoreMark
        | Why::AlreadyMarked
        | Why::PassthroughSource
        | Why::OtherLoopback => Key::InboundInterceptionMode,
        Why::ExcludedOutboundPort => Key::LocalOutboundPortsExclude,
        Why::ProxyCallsItself | Why::ProxyTraffic | Why::AppLoopback => Key::ProxyUid,
        Why::ExcludedOwnerGroup => Key::OutboundOwnerGroupsExclude,
        Why::OtherOwnerGroups => Key::OutboundOwnerGroups,
        Why::DnsTraffic
        | Why::DnsToProxy
        | Why::DnsZoneProxyQuery
        | Why::DnsZoneProxyResponse
        | Why::DnsZoneAppQuery
        | Why::DnsZoneServerResponse => Key::RedirectDns,
        Why::LoopbackDestination => Key::OutboundIpv4LoopbackCidr,
        Why::ExcludedRange => Key::ServiceExcludeCidr,
        Why::IncludedOutboundPort => Key::OutboundPorts,
        Why::IncludedRange | Why::EveryRange => Key::ServiceCidr,
        Why::OutboundTraffic
        | Why::InboundPassthrough
        | Why::OpenConnection
        | Why::SegmentDuringCapture
        | Why::InvalidDuringCapture
        | Why::KeepsTranslation => return None,
    })
}
