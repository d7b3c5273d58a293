//! The link `lo`.

use std::io;

use super::link::link_without_counters;
use super::{LOOPBACK, Rtnetlink};
use crate::kernel::netlink::Message;
use crate::kernel::procfs;

/// Where `struct ifinfomsg` has the link's flags.
const FLAGS: usize = 8;

/// Whether `lo` takes no IPv6 address: IPv6 is disabled on it. Without `/proc` it is taken to do.
///
/// # Errors
/// The setting cannot be read.
pub fn refuses_ipv6() -> io::Result<bool> {
    let setting = procfs::read_if_present("/proc/sys/net/ipv6/conf/lo/disable_ipv6")?;
    Ok(setting.is_some_and(|setting| setting.trim() != "0"))
}

/// Whether `lo` is up in this thread's network namespace.
///
/// # Errors
/// The kernel refuses.
pub fn is_up() -> io::Result<bool> {
    let flags = Rtnetlink::open()?.socket.query(&link_without_counters(LOOPBACK), |link| link.word(FLAGS))?;
    Ok(u32::try_from(libc::IFF_UP).is_ok_and(|up| flags & up != 0))
}

/// Sets `lo` up in this thread's network namespace.
///
/// # Errors
/// The kernel refuses.
pub fn set_up() -> io::Result<()> {
    let [a, b, c, d] = LOOPBACK.to_ne_bytes();
    let [e, f, g, h] = libc::IFF_UP.to_ne_bytes();
    // Flags, and which of them are to change.
    let message = Message::new(libc::RTM_NEWLINK, 0, &[0, 0, 0, 0, a, b, c, d, e, f, g, h, e, f, g, h]);
    Rtnetlink::open()?.socket.request(&message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlab::in_new_namespace;
    use netlab::process::run;

    #[test]
    fn the_link_is_seen_up_and_down() {
        in_new_namespace(|| {
            assert!(is_up().unwrap());
            run("ip", &["link", "set", "lo", "down"]);
            assert!(!is_up().unwrap());
            set_up().unwrap();
            assert!(is_up().unwrap());
        });
    }
}
