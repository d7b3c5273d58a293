//! IPsec policies of the kernel (`ip xfrm policy`): plain data.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// The policies of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ipsec {
    /// Each of them, in the order in which the kernel tries them.
    pub policies: Vec<IpsecPolicy>,
    /// The directions in which packets that match no policy are dropped.
    pub blocked_by_default: Vec<IpsecDirection>,
}

/// The direction of the packets that a policy matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpsecDirection {
    /// Those for this machine.
    In,
    /// Those that it sends.
    Out,
    /// Those that it forwards.
    Forward,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpsecAction {
    /// It is dropped; what a process sends fails.
    Block,
    /// It passes as it is.
    Pass,
    /// It has to come, or to leave, by IPsec.
    Transform,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpsecPolicy {
    /// Which packets.
    pub direction: IpsecDirection,
    /// What becomes of them.
    pub action: IpsecAction,
    /// Where they come from.
    pub source: IpNetwork,
    /// Where they go.
    pub destination: IpNetwork,
    /// Their source port, and its bits that count.
    pub source_port: (u16, u16),
    /// Their destination port, and its bits that count.
    pub destination_port: (u16, u16),
    /// The number of their protocol; 0 for all.
    pub protocol: u8,
    /// Their mark, and its bits that count.
    pub mark: (u32, u32),
    /// The lower, the earlier.
    pub priority: u32,
    /// Whether it has another test: an interface, or a user.
    pub has_other_tests: bool,
}

impl fmt::Display for IpsecDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Forward => "fwd",
        })
    }
}

/// As `ip xfrm policy` has it.
impl fmt::Display for IpsecPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, action, source, destination, source_port, destination_port, .. } = self;
        write!(f, "src {source} dst {destination}")?;
        match self.protocol {
            0 => {}
            6 => f.write_str(" proto tcp")?,
            17 => f.write_str(" proto udp")?,
            other => write!(f, " proto {other}")?,
        }
        for (name, (port, mask)) in [("sport", source_port), ("dport", destination_port)] {
            match mask {
                0 => {}
                &u16::MAX => write!(f, " {name} {port}")?,
                mask => write!(f, " {name} {port}/{mask:#x}")?,
            }
        }
        if self.mark.1 != 0 {
            write!(f, " mark {:#x}/{:#x}", self.mark.0, self.mark.1)?;
        }
        write!(f, " dir {direction}")?;
        f.write_str(match action {
            IpsecAction::Block => " action block",
            IpsecAction::Pass => "",
            IpsecAction::Transform => " with a template",
        })
    }
}

/// A packet, as far as policies look at it.
#[derive(Clone, Copy, Debug)]
pub struct IpsecFlow {
    /// Source address and port.
    pub source: (IpAddr, u16),
    /// Destination address and port.
    pub destination: (IpAddr, u16),
    /// The number of its protocol.
    pub protocol: u8,
    /// Its mark, if that is known.
    pub mark: Option<u32>,
}

/// What policies make of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IpsecOutcome {
    /// It passes.
    Passes,
    /// It is dropped, by what these words say.
    Blocked(String),
    /// This decides, and cannot be evaluated.
    Unknown(String),
}

impl Ipsec {
    /// What becomes of a packet.
    #[must_use]
    pub fn outcome(
        &self,
        direction: IpsecDirection,
        flow: &IpsecFlow,
        is_over_loopback: bool,
    ) -> IpsecOutcome {
        let mut unsure = None;
        let decided =
            self.policies.iter().filter(|policy| policy.direction == direction).find_map(|policy| {
                let words = || format!("the IPsec policy `{policy}`");
                match (policy.is_for(flow)?, policy.action) {
                    (true, IpsecAction::Pass) => Some(IpsecOutcome::Passes),
                    (true, IpsecAction::Block) => Some(IpsecOutcome::Blocked(words())),
                    (true, IpsecAction::Transform) => Some(IpsecOutcome::Unknown(words())),
                    (false, _) => {
                        unsure.get_or_insert_with(|| (policy.action, words()));
                        None
                    }
                }
            });
        // A device that is loopback is exempt where a packet leaves.
        let is_by_default = self.blocked_by_default.contains(&direction)
            && !(is_over_loopback && direction == IpsecDirection::Out);
        let decided = decided.unwrap_or_else(|| {
            if is_by_default {
                IpsecOutcome::Blocked(format!(
                    "the default of IPsec policies (`dir {direction} action block`)"
                ))
            } else {
                IpsecOutcome::Passes
            }
        });
        match (unsure, &decided) {
            (Some((IpsecAction::Pass, _)) | None, _) => decided,
            (Some((IpsecAction::Block, _)), IpsecOutcome::Blocked(_)) => decided,
            (Some((_, words)), _) => IpsecOutcome::Unknown(words),
        }
    }
}

impl IpsecPolicy {
    /// Whether it is for a packet; `None` if it is not, and false if that is not known.
    fn is_for(&self, flow: &IpsecFlow) -> Option<bool> {
        let port = |(wanted, mask): (u16, u16), port: u16| (wanted ^ port) & mask == 0;
        let is_met = self.source.contains(flow.source.0)
            && self.destination.contains(flow.destination.0)
            && [0, flow.protocol].contains(&self.protocol)
            && port(self.source_port, flow.source.1)
            && port(self.destination_port, flow.destination.1);
        let (mark, mask) = self.mark;
        let is_marked = flow.mark.map_or(mask == 0, |found| (found ^ mark) & mask == 0);
        match flow.mark {
            _ if !is_met => None,
            Some(_) if !is_marked => None,
            Some(_) | None => Some(is_marked && !self.has_other_tests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(action: IpsecAction, destination: &str) -> IpsecPolicy {
        IpsecPolicy {
            direction: IpsecDirection::Out,
            action,
            source: "0.0.0.0/0".parse().expect("a network"),
            destination: destination.parse().expect("a network"),
            source_port: (0, 0),
            destination_port: (0, 0),
            protocol: 0,
            mark: (0, 0),
            priority: 0,
            has_other_tests: false,
        }
    }

    fn outcome(policies: &[IpsecPolicy], mark: Option<u32>) -> &'static str {
        let ipsec = Ipsec { policies: policies.to_vec(), blocked_by_default: Vec::new() };
        let at = |address: &str, port| (address.parse().expect("an address"), port);
        let flow =
            IpsecFlow { source: at("10.0.0.1", 50000), destination: at("10.1.0.5", 80), protocol: 6, mark };
        match ipsec.outcome(IpsecDirection::Out, &flow, false) {
            IpsecOutcome::Passes => "passes",
            IpsecOutcome::Blocked(_) => "blocked",
            IpsecOutcome::Unknown(_) => "unknown",
        }
    }

    #[test]
    fn first_policy_for_a_packet_decides() {
        use IpsecAction::{Block, Pass, Transform};
        let block = policy(Block, "10.0.0.0/8");
        assert_eq!(outcome(&[], Some(0)), "passes");
        assert_eq!(outcome(std::slice::from_ref(&block), Some(0)), "blocked");
        assert_eq!(outcome(&[policy(Pass, "10.1.0.0/16"), block.clone()], Some(0)), "passes");
        assert_eq!(outcome(&[policy(Pass, "10.2.0.0/16"), block.clone()], Some(0)), "blocked");
        assert_eq!(outcome(&[policy(Transform, "10.1.0.0/16"), block.clone()], Some(0)), "unknown");
        for (changed, expected) in [
            (IpsecPolicy { protocol: 17, ..policy(Block, "10.0.0.0/8") }, "passes"),
            (IpsecPolicy { destination_port: (80, u16::MAX), ..policy(Block, "10.0.0.0/8") }, "blocked"),
            (IpsecPolicy { destination_port: (81, u16::MAX), ..policy(Block, "10.0.0.0/8") }, "passes"),
            (IpsecPolicy { source_port: (0xc350, 0xff00), ..policy(Block, "10.0.0.0/8") }, "blocked"),
            (IpsecPolicy { mark: (5, u32::MAX), ..policy(Block, "10.0.0.0/8") }, "passes"),
            (IpsecPolicy { has_other_tests: true, ..policy(Block, "10.0.0.0/8") }, "unknown"),
            (IpsecPolicy { direction: IpsecDirection::In, ..policy(Block, "10.0.0.0/8") }, "passes"),
        ] {
            assert_eq!(outcome(std::slice::from_ref(&changed), Some(0)), expected, "{changed}");
        }
        let marked = IpsecPolicy { mark: (5, u32::MAX), ..policy(Block, "10.0.0.0/8") };
        assert_eq!(outcome(std::slice::from_ref(&marked), None), "unknown");
        assert_eq!(outcome(&[marked, block], None), "blocked");
    }
}
