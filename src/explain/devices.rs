//! What may decide over a packet outside of the tables of rules, and cannot be evaluated.

use super::Pod;
use super::packet::Packet;
use super::walk::{Verdict, Walk};
use crate::text::one_line;

/// What may decide over the packet, in words: that which is met first at the front.
pub(super) fn may_decide(packet: &Packet, walk: &Walk<'_>, pod: &Pod<'_>) -> Vec<String> {
    let Some(live) = &pod.live else { return Vec::new() };
    let programs = live.runtime.programs.iter().filter(|program| program.may_decide(packet, walk));
    // What does not leave is at no interface.
    let is_sent = packet.is_inbound || !matches!(walk.verdict, Verdict::Dropped | Verdict::NoRoute);
    let at = |device: &str| device == interface(packet, walk);
    let met = live.devices.iter().filter(|hook| is_sent && at(&hook.interface));
    let hooks = met.map(|hook| format!("{} takes it or its replies", one_line(&hook.words())));
    programs.map(|program| program.words.clone()).chain(walk.order.clone()).chain(hooks).collect()
}

/// The interface that a packet passes.
pub(super) fn interface<'a>(packet: &'a Packet, walk: &Walk<'_>) -> &'a str {
    match walk.verdict {
        Verdict::Captured(_) | Verdict::ToProxySocket if !packet.is_inbound => "lo",
        Verdict::Captured(_)
        | Verdict::Dropped
        | Verdict::LikeItsConnection
        | Verdict::Misrouted
        | Verdict::NoRoute
        | Verdict::NotCaptured
        | Verdict::TakenByForeignRule
        | Verdict::ToProxySocket => &packet.interface,
    }
}
