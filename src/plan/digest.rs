//! Digests that distinguish desired states.

use super::DesiredState;
use crate::render;

impl DesiredState {
    /// FNV-1a of the rules of both families, the address and the routes. Two states with the same digest are
    /// the same to packets, whichever backend holds them.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut text = format!("{}\n", self.network.passthrough);
        for (family, tproxy) in &self.network.tproxy {
            text.push_str(&format!("{family} {} {}\n", tproxy.mark, tproxy.table));
        }
        for (family, rules) in &self.rules {
            text.push_str(&format!("{family}\n{}", render::fresh(rules)));
        }
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}
