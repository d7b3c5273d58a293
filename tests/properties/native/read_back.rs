//! Rules that are read back from native tables.

use istio_iptables::model::{Hook, Target};
use istio_iptables::parse::{self, NativeLine, NativeRules};

use super::iptables::matches_iptables;
use super::packet::{Outcome, Packet, Verdict};

pub(super) fn read_back(rules: Option<&NativeRules>, hook: Hook, mut packet: Packet) -> Outcome {
    let verdict = rules
        .and_then(|rules| walk_read_back(rules, rules.hooks.get(&hook).map(Vec::as_slice)?, &mut packet));
    packet.done(verdict)
}

fn walk_read_back(rules: &NativeRules, lines: &[NativeLine], packet: &mut Packet) -> Option<Verdict> {
    for line in lines {
        let text = line.live.words();
        let gone_to = text.rsplit_once("-g ");
        let statement = match (line.live.statement(), gone_to) {
            (Some(statement), None) => statement.clone(),
            (None, Some((tests, _))) => {
                parse::statement(packet.family, &format!("{tests}-j RETURN")).expect("tests of the model")
            }
            _ => panic!("not understood: {text}"),
        };
        if !matches_iptables(&statement.matcher, packet) {
            continue;
        }
        if let Some((_, name)) = gone_to {
            return walk_read_back(rules, &rules.chains[name], packet);
        }
        match statement.target {
            Target::Accept => return Some(Verdict::Accept),
            Target::Drop => return Some(Verdict::Drop),
            Target::Return => return None,
            Target::Redirect(port) => return Some(Verdict::Redirect(port.number())),
            Target::Tproxy { port, mark } if packet.listening => {
                packet.mark = mark.0;
                return Some(Verdict::Tproxy(port.number()));
            }
            Target::Tproxy { .. } => return Some(Verdict::Drop),
            Target::ConntrackZone(zone) => _ = packet.zone.get_or_insert(zone),
            Target::SetMark(mark) => packet.mark = mark.0,
            Target::SaveMark => packet.connmark = packet.mark,
            Target::RestoreMark => packet.mark = packet.connmark,
            Target::Jump(chain) => {
                if let Some(verdict) = walk_read_back(rules, &rules.chains[chain.name()], packet) {
                    return Some(verdict);
                }
            }
        }
    }
    None
}
