//! Zones of connection tracking.

/// A zone of connection tracking: connections in different zones know nothing of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zone {
    /// Of what goes in the direction of the first packet.
    pub(super) original: u16,
    /// Of the replies.
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
    fn zones_have_directions() {
        let of = |words: &str| Zone::of(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(of("--zone 5"), Some(Zone::both(5)));
        assert_eq!(of("--zone-orig 5"), Some(Zone { original: 5, reply: 0 }));
        assert_eq!(of("--zone-reply 5"), Some(Zone { original: 0, reply: 5 }));
        assert_eq!(of("--helper ftp"), Some(Zone::default()));
        assert_eq!(of("--zone mark"), None);
    }
}
