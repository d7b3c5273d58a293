//! Ports in rules.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// A TCP or UDP port: 1–65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(NonZeroU16);

impl Port {
    /// The port with this number; `None` for 0.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// A port known when the program is compiled.
    ///
    /// # Panics
    ///
    /// When `number` is 0; in a constant that is a compile error.
    #[must_use]
    #[allow(clippy::panic, reason = "evaluated at compile time")]
    pub const fn constant(number: u16) -> Self {
        match Self::new(number) {
            Some(port) => port,
            None => panic!("0 is not a port"),
        }
    }

    /// The number of the port.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Not a plain decimal port number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortError;

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port is a decimal number from 1 to 65535")
    }
}

impl std::error::Error for PortError {}

impl FromStr for Port {
    type Err = PortError;

    /// Plain decimal only: no sign, no leading zero, no range, no service name.
    fn from_str(text: &str) -> Result<Self, PortError> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        plain.then(|| text.parse().ok()).flatten().and_then(Self::new).ok_or(PortError)
    }
}

/// One port, or several tested at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ports {
    /// Any of these (at most 15 in one iptables rule).
    Any(Vec<Port>),
    /// Just this one.
    One(Port),
}
