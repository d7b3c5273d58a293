//! A configuration in one line, for the log.

use std::fmt;

use super::{CaptureConfig, Dns, InboundPorts, Mode, OutboundRanges, OwnerGroups};

impl fmt::Display for CaptureConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capturing {} traffic; inbound: ", self.families)?;
        match &self.inbound {
            InboundPorts::None => f.write_str("nothing")?,
            InboundPorts::All { except } if except.is_empty() => f.write_str("every port")?,
            InboundPorts::All { except } => write!(f, "every port but {}", except.len())?,
            InboundPorts::Only(ports) => write!(f, "{} ports", ports.len())?,
        }
        write!(f, " to {}", self.ports.inbound)?;
        match self.mode {
            Mode::Redirect => f.write_str(" by REDIRECT")?,
            Mode::Tproxy(tproxy) => write!(f, " by TPROXY (mark {}, table {})", tproxy.mark, tproxy.table)?,
        }
        f.write_str("; outbound: ")?;
        self.outbound_summary(f)?;
        write!(f, " to {}", self.ports.outbound)?;
        match &self.dns {
            Dns::Off => {}
            Dns::All => f.write_str("; DNS: all of it")?,
            Dns::Servers { v4, v6 } => write!(f, "; DNS: to {} servers", v4.len() + v6.len())?,
        }
        if self.drop_invalid {
            f.write_str("; invalid packets dropped")?;
        }
        write!(
            f,
            "; left alone: uid {}, gid {}",
            list(&self.proxy.uids),
            list(&self.proxy.gids)
        )
    }
}

impl CaptureConfig {
    fn outbound_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outbound = &self.outbound;
        match &outbound.ranges {
            OutboundRanges::All => f.write_str("every range")?,
            OutboundRanges::None if outbound.ports.is_empty() => f.write_str("nothing")?,
            OutboundRanges::None => f.write_str("no range")?,
            OutboundRanges::Only(ranges) => write!(f, "{} ranges", ranges.len())?,
        }
        let count = |f: &mut fmt::Formatter<'_>, sign: &str, number: usize, what: &str| match number {
            0 => Ok(()),
            number => write!(f, " {sign} {number} {what}"),
        };
        count(f, "but", outbound.excluded_ranges.len(), "ranges")?;
        count(f, "but", outbound.excluded_ports.len(), "ports")?;
        count(f, "and", outbound.ports.len(), "ports")?;
        match &outbound.owners {
            OwnerGroups::All { except } => count(f, "but", except.len(), "groups"),
            OwnerGroups::Only(gids) => write!(f, " of groups {}", list(gids)),
        }
    }
}

fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(",")
}
