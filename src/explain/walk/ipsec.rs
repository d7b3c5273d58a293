//! IPsec policies on a packet's way.

use std::net::SocketAddr;

use super::Walker;
use crate::config::ConnectionState;
use crate::model::{IpsecDirection, IpsecOutcome};

impl Walker<'_, '_> {
    /// Whether an IPsec policy drops a packet with these ends.
    pub(super) fn is_blocked(
        &mut self,
        direction: IpsecDirection,
        ends: (SocketAddr, SocketAddr),
        interface: &str,
    ) -> bool {
        match self.routing.ipsec(direction, &self.at, ends, interface) {
            IpsecOutcome::Passes => return false,
            IpsecOutcome::Unknown(words) => {
                if !self.ipsec.contains(&words) {
                    self.ipsec.push(words);
                }
                return false;
            }
            IpsecOutcome::Blocked(words) => {
                let fails = direction == IpsecDirection::Out && self.packet.state == ConnectionState::New;
                let how = if fails { ": sending it fails (EPERM)" } else { "" };
                self.because = Some(format!("{words} drops it{how}"));
            }
        }
        true
    }

    /// The same where it leaves, as it is now.
    pub(super) fn is_blocked_outbound(&mut self) -> bool {
        let ends = (self.at.source, self.at.destination);
        self.is_blocked(IpsecDirection::Out, ends, &self.leaves_by())
    }
}
