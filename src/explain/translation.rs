//! The new destination that a nat rule sets.

use std::net::{IpAddr, SocketAddr};

/// A new destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    pub(super) address: To<IpAddr>,
    pub(super) port: To<u16>,
}

/// The new value of the address or the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To<T> {
    /// Unchanged.
    Same,
    /// The address of this machine (REDIRECT).
    Own,
    This(T),
    /// One of several values, or not understood.
    Unknown,
}

impl Translation {
    /// Reads a target and its options.
    pub(super) fn of(words: &[&str]) -> Self {
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        let port = |text: &str| text.parse().map_or(To::Unknown, To::This);
        match (words.first().copied(), value("--to-ports"), value("--to-destination")) {
            (Some("REDIRECT"), ports, _) => Self { address: To::Own, port: ports.map_or(To::Same, port) },
            (Some("DNAT"), _, Some(to)) => {
                let this = |address, port| Self { address: To::This(address), port };
                let socket = to.parse().map(|to: SocketAddr| this(to.ip(), To::This(to.port())));
                let address = || to.trim_matches(['[', ']']).parse().map(|address| this(address, To::Same));
                let same =
                    || to.strip_prefix(':').map(|number| Self { address: To::Same, port: port(number) });
                let unknown = Self { address: To::Unknown, port: To::Unknown };
                socket.or_else(|_| address()).unwrap_or_else(|_| same().unwrap_or(unknown))
            }
            _ => Self { address: To::Unknown, port: To::Unknown },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_as_far_as_they_are_one() {
        let of = |text: &str| {
            let Translation { address, port } = Translation::of(&text.split(' ').collect::<Vec<_>>());
            (address, port)
        };
        let this = |address: &str| To::This(address.parse().expect("an address"));
        assert_eq!(of("DNAT --to-destination 10.0.0.1:80"), (this("10.0.0.1"), To::This(80)));
        assert_eq!(of("DNAT --to-destination [::1]:80"), (this("::1"), To::This(80)));
        assert_eq!(of("DNAT --to-destination ::1"), (this("::1"), To::Same));
        assert_eq!(of("DNAT --to-destination [::1]"), (this("::1"), To::Same));
        assert_eq!(of("DNAT --to-destination :80"), (To::Same, To::This(80)));
        assert_eq!(of("DNAT --to-destination 10.0.0.1"), (this("10.0.0.1"), To::Same));
        assert_eq!(of("DNAT --to-destination 10.0.0.1-10.0.0.5:80"), (To::Unknown, To::Unknown));
        assert_eq!(of("DNAT --to-destination 10.0.0.1:80-90"), (To::Unknown, To::Unknown));
        assert_eq!(of("DNAT"), (To::Unknown, To::Unknown));
        assert_eq!(of("REDIRECT --to-ports 80 --random"), (To::Own, To::This(80)));
        assert_eq!(of("REDIRECT --to-ports 80-90"), (To::Own, To::Unknown));
        assert_eq!(of("REDIRECT"), (To::Own, To::Same));
        assert_eq!(of("NETMAP --to 10.0.0.0/8"), (To::Unknown, To::Unknown));
    }
}
