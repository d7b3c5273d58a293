//! The version of the running kernel, for what it lacks and does not report.

use std::str::FromStr;

use nix::sys::utsname::uname;

use super::recording;

/// Major and minor version of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    /// Translates a connection at every hook, whichever base chains of NAT there are in nf_tables.
    pub const NAT_AT_EVERY_HOOK: Self = Self::new(4, 18);
    /// Has NAT in nf_tables tables of the family `inet`.
    pub const INET_NAT: Self = Self::new(5, 2);

    /// A version.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// What `uname -r` prints.
    #[must_use]
    pub fn text_of_running() -> Option<String> {
        recording::text("release of the kernel", &mut || {
            Ok(uname()?.release().to_string_lossy().into_owned())
        })
        .ok()
    }

    /// Whether the running kernel is older than `self`. One that does not say its version is not.
    #[must_use]
    pub fn is_after_running(self) -> bool {
        let running = Self::text_of_running().and_then(|running| running.parse().ok());
        running.is_some_and(|running: Self| running < self)
    }
}

/// The text is not a version of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARelease;

impl FromStr for Release {
    type Err = NotARelease;

    /// Reads what `uname -r` prints: `4.15.0-213-generic`.
    fn from_str(text: &str) -> Result<Self, NotARelease> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self { major, minor }),
            _ => Err(NotARelease),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_read_and_compared() {
        for (text, major, minor) in [
            ("4.15.0-213-generic", 4, 15),
            ("4.18.0-553.el8_10.x86_64", 4, 18),
            ("5.10.0-46-cloud-amd64", 5, 10),
            ("7.2.13+deb14-cloud-amd64", 7, 2),
            ("6.18-rc1", 6, 18),
        ] {
            assert_eq!(text.parse(), Ok(Release::new(major, minor)), "{text}");
        }
        for text in ["", "linux", "5", "x.1"] {
            assert_eq!(text.parse::<Release>(), Err(NotARelease), "{text}");
        }
        assert!(Release::new(4, 15) < Release::NAT_AT_EVERY_HOOK);
        assert!(Release::new(4, 18) >= Release::NAT_AT_EVERY_HOOK);
        assert!(Release::new(4, 20) < Release::INET_NAT && Release::new(5, 10) > Release::INET_NAT);
    }

    #[test]
    fn running_kernel_has_a_version() {
        assert!(Release::new(u32::MAX, 0).is_after_running());
        assert!(!Release::new(0, 0).is_after_running());
    }
}
