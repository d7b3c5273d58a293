//! `/etc/resolv.conf`, read the way the resolver of the C library reads it.

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
}

/// The servers that the text of `/etc/resolv.conf` names.
///
/// The keyword stands at the very beginning of its line with a blank behind it; a zone (`fe80::1%eth0`) is cut off; what
/// follows the address does not matter; lines that make no sense are skipped. The resolver asks the first three servers
/// only, but programs with a resolver of their own ask all of them: so all of them are listed.
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
    if !rest.starts_with([' ', '\t']) {
        return None;
    }
    let word = rest.split_ascii_whitespace().next()?;
    let (address, zone) = word.split_once('%').unwrap_or((word, ""));
    let address: IpAddr = address.parse().ok()?;
    // Queries to an IPv4-mapped address leave as IPv4 packets. A zone behind an IPv4 address makes no sense.
    (zone.is_empty() || address.is_ipv6()).then(|| address.to_canonical())
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
        ] {
            assert_eq!(listed(line), expected, "{line:?}");
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
