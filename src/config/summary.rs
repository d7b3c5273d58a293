//! A configuration in one line, for the log.

use std::fmt;

use crate::model::Family;
use crate::text::count;

use super::{CaptureConfig, Dns, InboundPorts, Mode, OutboundRanges, OwnerGroups, ProxyOwner, Traffic};

impl fmt::Display for CaptureConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capturing {} traffic; {}", self.families, self.parts().join("; "))
    }
}

impl CaptureConfig {
    /// Whether no packet gets to the proxy.
    #[must_use]
    pub fn captures_nothing(&self) -> bool {
        self.kinds().next().is_none()
    }

    /// The kinds of traffic that get to the proxy.
    fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let Traffic { inbound, outbound, .. } = &self.traffic;
        let has_outbound = outbound.ranges != OutboundRanges::None || !outbound.ports.is_empty();
        let kinds = [
            (*inbound != InboundPorts::None, "inbound"),
            (has_outbound, "outbound"),
            (self.dns != Dns::Off, "DNS"),
        ];
        kinds.into_iter().filter(|(is_captured, _)| *is_captured).map(|(_, kind)| kind)
    }

    /// What is captured, in a line of at most 100 characters.
    #[must_use]
    pub fn verdict(&self) -> String {
        let kinds: Vec<&str> = self.kinds().collect();
        if kinds.is_empty() {
            return "these options capture nothing: they name no port and no range".to_owned();
        }
        let last = kinds.len() - 1;
        let (first, last) =
            (kinds.get(..last).unwrap_or_default().join(", "), kinds.get(last).unwrap_or(&""));
        let and = if first.is_empty() { "" } else { " and " };
        format!("these options capture {first}{and}{last} traffic of {}", self.families)
    }

    /// What is captured of each kind, and what is not.
    #[must_use]
    pub fn parts(&self) -> Vec<String> {
        let mut inbound = match &self.traffic.inbound {
            InboundPorts::None => "inbound: nothing".to_owned(),
            InboundPorts::All { except } if except.is_empty() => "inbound: every port".to_owned(),
            InboundPorts::All { except } => format!("inbound: every port but {}", except.len()),
            InboundPorts::Only(ports) => format!("inbound: {}", count(ports.len(), "port")),
        };
        if self.traffic.inbound != InboundPorts::None {
            let way = match self.traffic.mode {
                Mode::Redirect => "REDIRECT".to_owned(),
                Mode::Tproxy(tproxy) => format!("TPROXY (mark {}, table {})", tproxy.mark, tproxy.table),
            };
            inbound += &format!(" to {} by {way}", self.traffic.ports.inbound);
        }
        let dns = match &self.dns {
            Dns::Off => None,
            Dns::All => Some("DNS: all of it".to_owned()),
            Dns::Servers { v4, v6 } => {
                let of = |family, servers| if self.families.contains(family) { servers } else { 0 };
                Some(match of(Family::V4, v4.len()) + of(Family::V6, v6.len()) {
                    0 => "DNS: nothing".to_owned(),
                    servers => format!("DNS: to {}", count(servers, "server")),
                })
            }
        };
        let invalid = self.traffic.drop_invalid.then(|| "invalid packets dropped".to_owned());
        let ProxyOwner { uids, gids } = &self.traffic.proxy;
        let exempt = format!("not captured: uid {}, gid {}", list(uids), list(gids));
        let all = [Some(inbound), Some(self.outbound_summary()), dns, invalid, Some(exempt)];
        all.into_iter().flatten().collect()
    }

    fn outbound_summary(&self) -> String {
        let outbound = &self.traffic.outbound;
        let some = |number: usize, what: &str| (number > 0).then(|| count(number, what));
        let ranges = match &outbound.ranges {
            OutboundRanges::All => Some("every range".to_owned()),
            OutboundRanges::None => None,
            OutboundRanges::Only(ranges) => some(ranges.len(), "range"),
        };
        let captured: Vec<String> =
            [ranges, some(outbound.ports.len(), "port")].into_iter().flatten().collect();
        if captured.is_empty() {
            return "outbound: nothing".to_owned();
        }
        let (except, of) = match &outbound.owners {
            OwnerGroups::All { except } => (some(except.len(), "group"), String::new()),
            OwnerGroups::Only(gids) => (None, format!(" of groups {}", list(gids))),
        };
        let ranges = some(outbound.excluded_ranges.len(), "range");
        let except: Vec<String> =
            [ranges, some(outbound.excluded_ports.len(), "port"), except].into_iter().flatten().collect();
        let except = if except.is_empty() { String::new() } else { format!(" except {}", except.join(", ")) };
        format!("outbound: {}{of}{except} to {}", captured.join(" and "), self.traffic.ports.outbound)
    }
}

fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(",")
}
