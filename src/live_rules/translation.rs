//! The new destination that a nat rule sets.

use std::net::IpAddr;

/// A new destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The address.
    pub address: To<IpAddr>,
    /// The port.
    pub port: To<u16>,
}

/// The new value of the address or the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To<T> {
    /// Unchanged.
    Same,
    /// The address of this machine (REDIRECT).
    Own,
    /// A value that the rule gives.
    This(T),
    /// One of several values, or not understood.
    Unknown,
}
