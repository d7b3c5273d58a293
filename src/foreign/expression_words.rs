//! What an expression of a foreign chain does to a packet, as one word.

use nfnetlink::nftables::{CtKey, Expression, Rule, Table, Verdict};

use crate::live_rules::Effect;
use crate::model::{Family, Target};
use crate::nft;
use crate::parse::{self, CtTarget, REWRITES};

/// The word for an expression that sets a conntrack zone.
pub(super) const CT_ZONE: &str = "ct zone";
/// The word for an expression that exempts packets from connection tracking.
pub(super) const NOTRACK: &str = "notrack";
/// The word for a lookup of a verdict.
const VERDICT_MAP: &str = "verdict map";

/// What an expression does, if it keeps a packet from later rules.
pub(super) fn word(expression: &Expression) -> Option<String> {
    let word = match expression {
        Expression::Verdict(Verdict::Drop) => "drop",
        Expression::Redirect { .. } => "redirect",
        Expression::Tproxy { .. } => "tproxy",
        Expression::SetCt { key: CtKey::Zone, .. } => CT_ZONE,
        Expression::Foreign { name, data } => match name.as_str() {
            "redir" => "redirect",
            // Where ours are, there is no other translation.
            "nat" => "dnat",
            "reject" | "queue" | NOTRACK | "synproxy" | "fwd" | "tproxy" => name,
            "immediate" => "verdict",
            "lookup" if is_verdict_map(expression) => VERDICT_MAP,
            "target" => return of_target(data),
            _ => return None,
        },
        Expression::Meta { .. }
        | Expression::SetMeta { .. }
        | Expression::Payload { .. }
        | Expression::Bitwise { .. }
        | Expression::Compare { .. }
        | Expression::Range { .. }
        | Expression::Lookup { .. }
        | Expression::Ct { .. }
        | Expression::SetCt { .. }
        | Expression::Counter { .. }
        | Expression::Immediate { .. }
        | Expression::Verdict(_)
        | Expression::Socket { .. } => return None,
    };
    Some(word.to_owned())
}

/// What a rule of a verdict map does, if it keeps a packet from later rules.
pub(super) fn word_of_effect(effect: &Effect) -> Option<&'static str> {
    let goes_on = matches!(
        effect,
        Effect::Known(Target::Accept | Target::Return | Target::Jump(_)) | Effect::Chain { .. }
    );
    let word = if *effect == Effect::Known(Target::Drop) { "drop" } else { VERDICT_MAP };
    (!goes_on).then_some(word)
}

/// The word for an expression that writes an address or a port.
pub(super) fn rewrites(table: &Table, rule: &Rule, expression: &Expression) -> Option<String> {
    let is_of = |family: &Family| {
        parse::has_packets_of(&table.name, *family) && nft::family_of(rule).is_none_or(|only| only == *family)
    };
    let writes = Family::ALL.into_iter().filter(is_of).any(|family| parse::writes_ends(family, expression));
    writes.then(|| REWRITES.to_owned())
}

/// Whether an expression looks up a verdict.
pub(super) fn is_verdict_map(expression: &Expression) -> bool {
    matches!(expression, Expression::Foreign { name, data } if name == "lookup" && parse::gives_verdict(data))
}

/// A target of iptables, as iptables-nft writes it.
fn of_target(data: &[u8]) -> Option<String> {
    const NAME: u16 = 1;
    const INFO: u16 = 3;
    let attributes = nfnetlink::Attributes::new(data);
    let word = match attributes.of(NAME)?.text().as_str() {
        "DNAT" | "NETMAP" => "dnat",
        "REDIRECT" => "redirect",
        "REJECT" => "reject",
        "NFQUEUE" => "queue",
        "TPROXY" => "tproxy",
        "SYNPROXY" => "synproxy",
        "NOTRACK" => NOTRACK,
        "CT" => match CtTarget::of(attributes.of(INFO)?.payload)? {
            CtTarget::NoTrack => NOTRACK,
            CtTarget::Zone("--zone", 0) => return None,
            CtTarget::Zone(..) | CtTarget::ZoneOfMark => CT_ZONE,
        },
        _ => return None,
    };
    Some(word.to_owned())
}
