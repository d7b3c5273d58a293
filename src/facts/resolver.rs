//! `/etc/resolv.conf`, read the way the resolvers of the C libraries read it.
//!
//! glibc and musl differ in some lines. A pod's programs may use either, so a server counts if one of them
//! would ask it; a rule for a server that a program does not ask matches nothing.
//!
//! | line | glibc | musl |
//! |---|---|---|
//! | `nameserver 10.0.0.1\r` | ignores it | 10.0.0.1 |
//! | another white-space character than blank or tab behind the word | ignores it | reads it |
//! | `fe80::1%nolink`, no such link | fe80::1 | ignores it |
//! | longer than 255 bytes | reads it | ignores it |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Name servers by family, each in the order of the file, none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameServers {
    /// IPv4 servers.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 servers.
    pub v6: Vec<Ipv6Addr>,
}

impl NameServers {
    /// Whether there is none at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The first one on a loopback address.
    #[must_use]
    pub fn loopback(&self) -> Option<IpAddr> {
        let all = self.v4.iter().copied().map(IpAddr::from).chain(self.v6.iter().copied().map(IpAddr::from));
        { all }.find(IpAddr::is_loopback)
    }
}

/// The servers that the text of `/etc/resolv.conf` names.
///
/// The keyword is at the very beginning of its line, followed by a blank; an IPv4 address may have any form
/// that `inet_aton(3)` reads (`10.77.2` is 10.77.0.2); a zone (`fe80::1%eth0`) is cut off; what follows the
/// address does not matter; other lines are skipped. The resolvers ask the first three servers only, but
/// programs with a resolver of their own ask all of them: so all of them are listed.
#[must_use]
pub fn name_servers(resolv_conf: &str) -> NameServers {
    let mut servers = NameServers::default();
    for address in resolv_conf.lines().filter_map(server) {
        match address {
            IpAddr::V4(address) if !servers.v4.contains(&address) => servers.v4.push(address),
            IpAddr::V6(address) if !servers.v6.contains(&address) => servers.v6.push(address),
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
    }
    servers
}

fn server(line: &str) -> Option<IpAddr> {
    let rest = line.strip_prefix("nameserver")?;
    let rest = rest.strip_prefix(is_space)?;
    let word = rest.split(is_space).find(|word| !word.is_empty())?;
    let address = inet_aton(word).map(IpAddr::V4).or_else(|| {
        let (address, _zone) = word.split_once('%').unwrap_or((word, ""));
        let address: Ipv6Addr = address.parse().ok()?;
        // Queries to an IPv4-mapped address leave as IPv4 packets.
        Some(address.to_canonical())
    })?;
    // The kernel sends what goes to the unspecified address to this host.
    Some(match address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        address @ (IpAddr::V4(_) | IpAddr::V6(_)) => address,
    })
}

/// `isspace(3)`.
const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// An IPv4 address as `inet_aton(3)` reads it: one to four numbers, each decimal, octal (`0...`) or
/// hexadecimal (`0x...`), of which the last fills all the bytes that are left.
fn inet_aton(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let bytes_left = 4_u32.checked_sub(u32::try_from(first.len()).ok()?).filter(|bytes| *bytes > 0)?;
    if bytes_left < 4 && *last >= 1 << (8 * bytes_left) {
        return None;
    }
    let mut address = *last;
    for (part, shift) in first.iter().zip([24, 16, 8]) {
        address |= u32::from(u8::try_from(*part).ok()?) << shift;
    }
    Some(Ipv4Addr::from(address))
}

/// A number of C: `strtoul` with base 0, without sign or blank in front.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => (hexadecimal, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    plain.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> String {
        let servers = name_servers(text);
        let v4 = servers.v4.iter().map(Ipv4Addr::to_string);
        v4.chain(servers.v6.iter().map(Ipv6Addr::to_string)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_usual_file() {
        let text =
            "search default.svc.cluster.local\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\n";
        assert_eq!(listed(text), "10.96.0.10 fd00::a");
    }

    #[test]
    fn comments_blanks_and_garbage_as_the_resolver_takes_them() {
        for (line, expected) in [
            ("# nameserver 10.0.0.1", ""),
            ("; nameserver 10.0.0.1", ""),
            (" nameserver 10.0.0.1", ""),
            ("\tnameserver 10.0.0.1", ""),
            ("nameserver10.0.0.1", ""),
            ("nameservers 10.0.0.1", ""),
            ("NAMESERVER 10.0.0.1", ""),
            ("nameserver", ""),
            ("nameserver ", ""),
            ("nameserver localhost", ""),
            ("nameserver 10.0.0.256", ""),
            ("nameserver 10.0.0.1%eth0", ""),
            ("nameserver 10.0.0.1", "10.0.0.1"),
            ("nameserver\t10.0.0.1", "10.0.0.1"),
            ("nameserver  \t 10.0.0.1  ", "10.0.0.1"),
            ("nameserver 10.0.0.1\r", "10.0.0.1"),
            ("nameserver 10.0.0.1 # the first", "10.0.0.1"),
            ("nameserver fe80::1%eth0", "fe80::1"),
            ("nameserver fe80::1%nolink ; x", "fe80::1"),
            ("nameserver ::ffff:10.0.0.1", "10.0.0.1"),
            ("nameserver \u{b}10.0.0.1\u{b}", "10.0.0.1"),
            ("nameserver 0.0.0.0", "127.0.0.1"),
            ("nameserver ::", "::1"),
            ("nameserver ::ffff:0.0.0.0", "127.0.0.1"),
        ] {
            assert_eq!(listed(line), expected, "{line:?}");
        }
    }

    #[test]
    fn addresses_in_every_form_of_inet_aton() {
        for (word, expected) in [
            ("10.77.2", "10.77.0.2"),
            ("10.5177346", "10.79.0.2"),
            ("0x0a.77.0.2", "10.77.0.2"),
            ("0X0A.0x4d.2", "10.77.0.2"),
            ("012.0115.0.02", "10.77.0.2"),
            ("173867010", "10.93.0.2"),
            ("0xffffffff", "255.255.255.255"),
            ("0", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("10.0.65535", "10.0.255.255"),
            ("10.0.65536", ""),
            ("10.16777216", ""),
            ("4294967296", ""),
            ("10.256.2", ""),
            ("10.08.2", ""),
            ("0x", ""),
            ("10.", ""),
            (".10", ""),
            ("10..2", ""),
            ("1.2.3.4.5", ""),
            ("+10.0.0.2", ""),
            ("10.0.0.-2", ""),
            ("10.0.0.2x", ""),
        ] {
            assert_eq!(listed(&format!("nameserver {word}")), expected, "{word}");
        }
    }

    #[test]
    fn more_than_three_count_and_none_twice() {
        let text: String =
            ["1", "2", "1", "3", "4", "2"].map(|n| format!("nameserver 10.0.0.{n}\n")).concat();
        assert_eq!(listed(&text), "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4");
        assert!(name_servers("").is_empty());
    }
}
