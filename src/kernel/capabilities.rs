//! Which privileges this process has.

use std::io;

use super::procfs;

/// The capabilities that matter here, as in effect (`capabilities(7)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// CAP_NET_ADMIN: rules, routes, addresses.
    pub net_admin: bool,
    /// CAP_NET_RAW: the raw socket that iptables-legacy opens.
    pub net_raw: bool,
    /// CAP_SETUID: the probe under the proxy's uid.
    pub setuid: bool,
    /// CAP_SETGID: likewise for the gid.
    pub setgid: bool,
    /// CAP_SYS_ADMIN: entering a network namespace, private mounts.
    pub sys_admin: bool,
}

impl Capabilities {
    /// Those of the current thread.
    ///
    /// # Errors
    /// `/proc` cannot be read, or has no capabilities.
    pub fn current() -> io::Result<Self> {
        let status = procfs::read(procfs::own("status"))?;
        Self::parse(&status).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status has no readable CapEff line")
        })
    }

    /// Reads the line `CapEff:` of the text of `/proc/self/status`.
    #[must_use]
    pub fn parse(status: &str) -> Option<Self> {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let bits = u64::from_str_radix(line.trim(), 16).ok()?;
        let has = |number: u32| bits & (1 << number) != 0;
        // The numbers are those of linux/capability.h.
        Some(Self {
            setgid: has(6),
            setuid: has(7),
            net_admin: has(12),
            net_raw: has(13),
            sys_admin: has(21),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_set_is_read() {
        let status =
            "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000003000\n";
        let expected = Capabilities { net_admin: true, net_raw: true, ..Capabilities::default() };
        assert_eq!(Capabilities::parse(status), Some(expected));
        let all =
            Capabilities { net_admin: true, net_raw: true, setuid: true, setgid: true, sys_admin: true };
        assert_eq!(Capabilities::parse("CapEff:\t000001ffffffffff"), Some(all));
        assert_eq!(Capabilities::parse("CapEff:\t0000000000000000"), Some(Capabilities::default()));
    }

    #[test]
    fn text_without_a_readable_line_is_no_answer() {
        for text in ["", "CapPrm:\t0", "CapEff:\t", "CapEff:\txyz", "CapEff:\t11111111111111111"] {
            assert_eq!(Capabilities::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn this_thread_has_a_readable_set() {
        assert!(Capabilities::current().is_ok());
    }
}
