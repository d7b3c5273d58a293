//! A configuration in one line, for the log.

use std::fmt;

use crate::model::Family;
use crate::text::count;

use super::{CaptureConfig, Dns, InboundPorts, Mode, OutboundRanges, OwnerGroups, Traffic};

impl fmt::Display for CaptureConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capturing {} traffic; inbound: ", self.families)?;
        match &self.traffic.inbound {
            InboundPorts::None => f.write_str("nothing")?,
            InboundPorts::All { except } if except.is_empty() => f.write_str("every port")?,
            InboundPorts::All { except } => write!(f, "every port but {}", except.len())?,
            InboundPorts::Only(ports) => f.write_str(&count(ports.len(), "port"))?,
        }
        if self.traffic.inbound != InboundPorts::None {
            write!(f, " to {}", self.traffic.ports.inbound)?;
            match self.traffic.mode {
                Mode::Redirect => f.write_str(" by REDIRECT")?,
                Mode::Tproxy(tproxy) => {
                    write!(f, " by TPROXY (mark {}, table {})", tproxy.mark, tproxy.table)?;
                }
            }
        }
        f.write_str("; outbound: ")?;
        self.outbound_summary(f)?;
        match &self.dns {
            Dns::Off => {}
            Dns::All => f.write_str("; DNS: all of it")?,
            Dns::Servers { v4, v6 } => {
                let of = |family, servers| if self.families.contains(family) { servers } else { 0 };
                match of(Family::V4, v4.len()) + of(Family::V6, v6.len()) {
                    0 => f.write_str("; DNS: nothing")?,
                    servers => write!(f, "; DNS: to {}", count(servers, "server"))?,
                }
            }
        }
        if self.traffic.drop_invalid {
            f.write_str("; invalid packets dropped")?;
        }
        write!(
            f,
            "; not captured: uid {}, gid {}",
            list(&self.traffic.proxy.uids),
            list(&self.traffic.proxy.gids)
        )
    }
}

impl CaptureConfig {
    /// Whether no packet gets to the proxy.
    #[must_use]
    pub fn captures_nothing(&self) -> bool {
        let Traffic { inbound, outbound, .. } = &self.traffic;
        let has_outbound = outbound.ranges != OutboundRanges::None || !outbound.ports.is_empty();
        *inbound == InboundPorts::None && !has_outbound && self.dns == Dns::Off
    }

    fn outbound_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            return f.write_str("nothing");
        }
        f.write_str(&captured.join(" and "))?;
        let groups = match &outbound.owners {
            OwnerGroups::All { except } => some(except.len(), "group"),
            OwnerGroups::Only(gids) => {
                write!(f, " of groups {}", list(gids))?;
                None
            }
        };
        let ranges = some(outbound.excluded_ranges.len(), "range");
        let except: Vec<String> =
            [ranges, some(outbound.excluded_ports.len(), "port"), groups].into_iter().flatten().collect();
        if !except.is_empty() {
            write!(f, " except {}", except.join(", "))?;
        }
        write!(f, " to {}", self.traffic.ports.outbound)
    }
}

fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(",")
}
