//! What sees packets at a network interface, before all rules or behind them: plain data.

use std::fmt;

/// A program or a filter at an interface, which is not evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHook {
    /// The interface.
    pub interface: String,
    /// What it is, in words.
    pub what: String,
    /// Whether it sees what leaves, behind the rules; otherwise what arrives, before them.
    pub leaves: bool,
}

impl DeviceHook {
    /// What it is, and where.
    #[must_use]
    pub fn words(&self) -> String {
        let way = if self.leaves { "egress" } else { "ingress" };
        format!("{} at {} ({way})", self.what, self.interface)
    }
}

impl fmt::Display for DeviceHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (order, which) = if self.leaves { ("behind", "leave") } else { ("before", "arrive") };
        write!(
            f,
            "{} may decide {order} our rules: it is not read: packets that it drops or sends elsewhere when they {which} are not as \
             the rules say",
            self.words()
        )
    }
}
