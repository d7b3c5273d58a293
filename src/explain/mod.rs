//! `explain`: whether a packet is captured, by which rule, and because of which option.
//!
//! The rules are those that [`crate::policy`] makes; this is one more interpreter of them. Nothing is read from the
//! kernel but the pod's addresses.

mod json;
mod matching;
mod overview;
mod packet;
mod reason;
#[cfg(test)]
mod tests;
mod text;
mod walk;

use crate::config::{CaptureConfig, GivenOption, Output, PacketQuery};
use crate::model::Network;
use crate::policy;

pub use packet::{Packet, Process};
pub use reason::{Cause, Reason, reason};
pub use walk::{Step, Verdict, Walk, walk};

/// The answer to a question, as it is printed.
#[must_use]
pub fn answer(
    query: &PacketQuery,
    config: &CaptureConfig,
    network: &Network,
    given: &[GivenOption],
) -> String {
    let rules = policy::ruleset(config);
    let explain = |packet: Packet, then: &mut dyn FnMut(&Packet, &Walk<'_>, &Reason)| {
        let rules = rules.resolve(packet.family());
        let walk = walk(&rules, &packet, config.traffic.mode);
        let reason = reason(&packet, &walk, config, given);
        then(&packet, &walk, &reason);
    };
    let mut printed = String::new();
    match query.destination {
        Some(destination) => {
            explain(Packet::of(query, destination, config, network), &mut |packet, walk, reason| {
                printed = match query.output {
                    Output::Text => text::packet(packet, walk, reason, config),
                    Output::Json => json::packet(packet, walk, reason),
                };
            });
        }
        None => {
            let mut rows = Vec::new();
            for (kind, packet) in overview::packets(config, network) {
                explain(packet, &mut |packet, walk, reason| {
                    rows.push(overview::Row::of(kind.clone(), packet, walk, reason));
                });
            }
            printed = match query.output {
                Output::Text => text::overview(&rows, config),
                Output::Json => json::overview(&rows),
            };
        }
    }
    printed
}
