//! What a rule changes in a packet, or in what is known of its connection: marks, and the zone of connection tracking.

use super::matching::AtHook;
use crate::model::Mark;

/// Some bits of a mark: these are cleared, and those of the value toggled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    value: u32,
    mask: u32,
}

impl Bits {
    const fn of(self, mark: Mark) -> Mark {
        Mark((mark.0 & !self.mask) ^ self.value)
    }
}

/// A change of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkChange {
    /// Of the packet's.
    Packet(Bits),
    /// Of the connection's.
    Connection(Bits),
    /// The packet's bits of one mask take the place of the connection's of the other.
    Save { from: u32, to: u32 },
    /// The connection's bits of one mask take the place of the packet's of the other.
    Restore { from: u32, to: u32 },
}

impl MarkChange {
    /// What a target and its options do; `None` if that is no change of a mark, or not understood.
    pub(super) fn of(target: &[&str]) -> Option<Self> {
        let whole = u32::MAX;
        Some(match target {
            ["MARK", "--set-xmark", bits] => Self::Packet(xmark(bits)?),
            // Clears the bits of the value, too.
            ["MARK", "--set-mark", bits] => {
                let Bits { value, mask } = xmark(bits)?;
                Self::Packet(Bits { value, mask: value | mask })
            }
            ["CONNMARK", "--set-xmark", bits] => Self::Connection(xmark(bits)?),
            ["CONNMARK", "--save-mark"] => Self::Save { from: whole, to: whole },
            ["CONNMARK", "--restore-mark"] => Self::Restore { from: whole, to: whole },
            ["CONNMARK", kind @ ("--save-mark" | "--restore-mark"), "--mask", mask] => {
                let mask = number(mask)?;
                Self::copy(kind, mask, mask)
            }
            [
                "CONNMARK",
                kind @ ("--save-mark" | "--restore-mark"),
                "--nfmask",
                packet,
                "--ctmask",
                connection,
            ] => Self::copy(kind, number(packet)?, number(connection)?),
            _ => return None,
        })
    }

    fn copy(kind: &str, packet: u32, connection: u32) -> Self {
        if kind == "--save-mark" {
            Self::Save { from: packet, to: connection }
        } else {
            Self::Restore { from: connection, to: packet }
        }
    }

    /// Changes the packet, or what is known of its connection.
    pub(super) fn apply(self, at: &mut AtHook) {
        let AtHook { mark, connmark, .. } = *at;
        let copied = |from: Mark, mask: u32, to: u32| Bits { value: from.0 & mask, mask: to };
        match self {
            Self::Packet(bits) => at.mark = bits.of(mark),
            // Without a connection there is nothing to change or to copy.
            Self::Connection(_) | Self::Save { .. } | Self::Restore { .. } if !at.has_connection() => {}
            Self::Connection(bits) => at.connmark = bits.of(connmark),
            Self::Save { from, to } => at.connmark = copied(mark, from, to).of(connmark),
            Self::Restore { from, to } => at.mark = copied(connmark, from, to).of(mark),
        }
    }
}

/// A mark, and the bits of it that count.
pub(super) fn masked(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

fn xmark(text: &str) -> Option<Bits> {
    let (value, mask) = masked(text)?;
    Some(Bits { value, mask })
}

/// As the tools print it.
fn number(text: &str) -> Option<u32> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u32::from_str_radix(digits, 16).ok())
}

/// A zone of connection tracking: connections in different zones know nothing of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zone {
    /// Of what goes in the direction of the first packet.
    pub(super) original: u16,
    /// Of the answers.
    pub(super) reply: u16,
}

impl Zone {
    pub(super) const fn both(zone: u16) -> Self {
        Self { original: zone, reply: zone }
    }

    /// What the options of `CT` say, apart from `--notrack`; `None` if it depends on the packet.
    pub(super) fn of(options: &[&str]) -> Option<Self> {
        let value = |name: &str| {
            let at = options.iter().position(|option| *option == name)?;
            options.get(at + 1).copied()
        };
        if let Some(zone) = value("--zone") {
            return zone.parse().ok().map(Self::both);
        }
        let side = |name: &str| value(name).map_or(Some(0), |zone| zone.parse().ok());
        Some(Self { original: side("--zone-orig")?, reply: side("--zone-reply")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_marks_are_changed_as_the_kernel_does() {
        let of = |words: &str| MarkChange::of(&words.split(' ').collect::<Vec<_>>());
        let set = |words: &str, mark: u32| match of(words) {
            Some(MarkChange::Packet(bits)) => bits.of(Mark(mark)).0,
            other => panic!("{words}: {other:?}"),
        };
        assert_eq!(set("MARK --set-xmark 0x539/0xffffffff", 7), 0x539);
        assert_eq!(set("MARK --set-xmark 0x4000/0x4000", 0x8001), 0xc001);
        assert_eq!(set("MARK --set-xmark 0x0/0x1", 3), 2);
        assert_eq!(set("MARK --set-mark 0x5/0x1", 2), 7);
        assert_eq!(
            of("CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff00"),
            Some(MarkChange::Restore { from: 0xff00, to: 0xff })
        );
        assert_eq!(of("HMARK --hmark-tuple src"), None);
    }

    #[test]
    fn zones_have_directions() {
        let of = |words: &str| Zone::of(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(of("--zone 5"), Some(Zone::both(5)));
        assert_eq!(of("--zone-orig 5"), Some(Zone { original: 5, reply: 0 }));
        assert_eq!(of("--zone-reply 5"), Some(Zone { original: 0, reply: 5 }));
        assert_eq!(of("--helper ftp"), Some(Zone::default()));
        assert_eq!(of("--zone mark"), None);
    }
}
