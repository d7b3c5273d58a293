//! Which privileges this process has.
#![allow(unsafe_code, reason = "no safe wrapper has the system call capget, and reading /proc takes ten")]

use std::io;

/// The capabilities that matter here, as in effect (`capabilities(7)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// CAP_NET_ADMIN: rules, routes, addresses.
    pub net_admin: bool,
    /// CAP_NET_BROADCAST: notices of changes in other network namespaces.
    pub net_broadcast: bool,
    /// CAP_NET_RAW: the raw socket that iptables-legacy opens.
    pub net_raw: bool,
    /// CAP_SETUID: the probe under the proxy's uid.
    pub setuid: bool,
    /// CAP_SETGID: likewise for the gid.
    pub setgid: bool,
    /// CAP_SYS_ADMIN: entering a network namespace, private mounts.
    pub sys_admin: bool,
}

/// What to do about missing privileges, on a node and in a container.
pub const GRANT: &str =
    "run as root (sudo); in a container: securityContext.capabilities.add: [NET_ADMIN] and runAsUser: 0";

/// `_LINUX_CAPABILITY_VERSION_3`: 64 bits, in two parts.
const VERSION: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    /// 0 for the current thread.
    process: libc::pid_t,
}

/// `struct __user_cap_data_struct`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Part {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

impl Capabilities {
    /// The capabilities of the current thread.
    ///
    /// # Errors
    /// The kernel refuses: a seccomp profile may.
    pub fn current() -> io::Result<Self> {
        let mut header = Header { version: VERSION, process: 0 };
        let mut parts = [Part::default(); 2];
        // SAFETY: both are of the layout and length that the kernel expects for this version, and outlive the
        // call.
        let outcome = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, parts.as_mut_ptr()) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        let [low, _] = parts;
        Ok(Self::of(low.effective))
    }

    /// The numbers are those of linux/capability.h.
    const fn of(effective: u32) -> Self {
        const fn has(bits: u32, number: u32) -> bool {
            bits & (1 << number) != 0
        }
        Self {
            setgid: has(effective, 6),
            setuid: has(effective, 7),
            net_broadcast: has(effective, 11),
            net_admin: has(effective, 12),
            net_raw: has(effective, 13),
            sys_admin: has(effective, 21),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs;

    #[test]
    fn each_capability_has_its_bit() {
        assert_eq!(Capabilities::of(0), Capabilities::default());
        let expected = Capabilities { net_admin: true, net_raw: true, ..Capabilities::default() };
        assert_eq!(Capabilities::of(0x3000), expected);
        let all = Capabilities {
            net_admin: true,
            net_broadcast: true,
            net_raw: true,
            setuid: true,
            setgid: true,
            sys_admin: true,
        };
        assert_eq!(Capabilities::of(u32::MAX), all);
    }

    #[test]
    fn the_effective_set_of_this_thread_is_read() {
        let status = procfs::read_own("status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let bits = u64::from_str_radix(line.trim(), 16).unwrap();
        let low = u32::try_from(bits & u64::from(u32::MAX)).unwrap();
        assert_eq!(Capabilities::current().unwrap(), Capabilities::of(low));
    }
}
