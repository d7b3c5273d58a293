//! Packets that our rules capture, and that policy routing drops or leads elsewhere.

use super::rules::Rules;
use super::walk::walk;
use super::{Pod, reason, row};
use crate::finding::{Finding, Problem, Subject};
use crate::text::one_line;

/// The policy rules that keep captured packets from the proxy, by themselves or by a route, each with one
/// such packet.
#[must_use]
pub fn misrouted(pod: &Pod<'_>) -> Vec<Finding> {
    let Some(live) = &pod.live else { return Vec::new() };
    let mut found: Vec<Finding> = Vec::new();
    for (kind, packet) in pod.kinds().into_iter().chain(pod.probes()) {
        let family = packet.family();
        let rules = live.rules.get(&family).filter(|rules| Rules::has_ours(rules));
        let Some(rules) = rules.filter(|_| row::is_captured_by_ours(&packet, live)) else { continue };
        let walk = walk(rules, &packet, live.routing(family));
        let is_new = |rule: &Subject| found.iter().all(|known| !known.about.contains(rule));
        let Some(rule) = walk.policy_rule().filter(is_new) else { continue };
        let why = reason::reason(&packet, &walk, pod).sentence;
        let sentence = format!("captured packets do not reach the proxy: {kind} ({family}): {why}");
        found.push(Finding::new(Problem::PolicyRouting, one_line(&sentence)).about([rule]).family(family));
    }
    found
}
