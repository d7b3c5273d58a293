//! Names of network interfaces.

use std::fmt;
use std::str::FromStr;

/// The name of a network interface; with a trailing `+` every interface whose name begins so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interface(String);

impl Interface {
    /// The loopback interface.
    #[must_use]
    pub fn loopback() -> Self {
        Self("lo".to_owned())
    }

    /// The name as iptables takes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the interface called `name` is meant.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.0.strip_suffix('+').map_or(self.0 == name, |prefix| name.starts_with(prefix))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not a name that an interface can have and that means the same to every tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceError;

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an interface name: 1 to 15 characters out of letters, digits, `.`, `_`, `-`, `@`, `:`; a trailing `+` \
             means every name that begins so",
        )
    }
}

impl std::error::Error for InterfaceError {}

impl FromStr for Interface {
    type Err = InterfaceError;

    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        let stem = text.strip_suffix('+').unwrap_or(text);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | ':');
        // A bare `+` would mean every interface, `lo` too; a leading `-` would read as an option.
        let valid = !stem.is_empty() && text.len() <= 15 && stem.chars().all(plain) && !stem.starts_with('-');
        let special = matches!(stem, "." | "..");
        if valid && !special { Ok(Self(text.to_owned())) } else { Err(InterfaceError) }
    }
}
