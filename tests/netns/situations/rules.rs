//! Single rules, one for each kind of match and target.

use super::situation::{NONE, Situation};

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        name: "accept a range",
        iptables: r#"*nat
-4 -I OUTPUT -d 198.51.100.0/24 -j ACCEPT
-6 -I OUTPUT -d 2001:db8:3::/48 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "accept by a range of addresses",
        iptables: r#"*nat
-4 -I OUTPUT -m iprange --dst-range 198.51.100.5-198.51.100.15 -j ACCEPT
-6 -I OUTPUT -m iprange --dst-range 2001:db8:3::5-2001:db8:3::15 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "return all but a range",
        iptables: r#"*nat
-4 -I OUTPUT -m iprange ! --dst-range 198.51.100.5-198.51.100.15 -j RETURN
-6 -I OUTPUT -m iprange ! --dst-range 2001:db8:3::5-2001:db8:3::15 -j RETURN
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "accept ports",
        iptables: r#"*nat
-I OUTPUT -p tcp -m multiport --dports 400:500,5432 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "app service:5432"],
        ..NONE
    },
    Situation {
        name: "accept all but ports",
        iptables: r#"*nat
-I OUTPUT -p tcp -m multiport ! --dports 400:500,5432 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "app service:5432"],
        ..NONE
    },
    Situation {
        name: "accept clients by their range",
        iptables: r#"*nat
-4 -I PREROUTING -p tcp -m iprange --src-range 10.1.0.1-10.1.0.1 -j ACCEPT
-6 -I PREROUTING -p tcp -m iprange --src-range fd00:1::1-fd00:1::1 -j ACCEPT
COMMIT
"#,
        packets: &["outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "accept on an interface",
        iptables: r#"*nat
-I PREROUTING -i eth0 -p tcp -m tcp --dport 8080 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "accept on all other interfaces",
        iptables: r#"*nat
-I PREROUTING ! -i eth+ -j ACCEPT
-I OUTPUT ! -o lo -p tcp -m tcp --dport 443 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "DNAT to another service",
        iptables: r#"*nat
-4 -I OUTPUT -d 192.0.2.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.51.100.10:443
-6 -I OUTPUT -d 2001:db8:2::10/128 -p tcp -m tcp --dport 80 -j DNAT --to-destination [2001:db8:3::10]:443
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "DNAT of clients to another port",
        iptables: r#"*nat
-I PREROUTING -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 8443
COMMIT
"#,
        packets: &["outside pod:8080", "outside pod:8443"],
        ..NONE
    },
    Situation {
        name: "SNAT of what leaves",
        iptables: r#"*nat
-4 -A POSTROUTING -o eth0 -p tcp -j SNAT --to-source 10.1.0.2
-6 -A POSTROUTING -o eth0 -p tcp -j SNAT --to-source fd00:1::2
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "MASQUERADE of what leaves",
        iptables: r#"*nat
-A POSTROUTING -m addrtype ! --dst-type LOCAL -j MASQUERADE
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "a queue without a program",
        iptables: r#"*mangle
-I OUTPUT -p tcp -m tcp --dport 80 -j NFQUEUE --queue-num 7
COMMIT
"#,
        packets: &["app service:80", "app other:443"],
        ..NONE
    },
    Situation {
        name: "a queue with bypass",
        iptables: r#"*mangle
-I OUTPUT -p tcp -m tcp --dport 80 -j NFQUEUE --queue-num 7 --queue-bypass
COMMIT
"#,
        packets: &["app service:80", "app other:443", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "accept new connections only",
        iptables: r#"*nat
-I OUTPUT -p tcp -m conntrack --ctstate NEW -m tcp --dport 443 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "accept what opens a connection",
        iptables: r#"*nat
-I OUTPUT -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m multiport --dports 443 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "drop odd flags",
        iptables: r#"*raw
-I PREROUTING -p tcp -m tcp --tcp-flags ALL NONE -j DROP
-I PREROUTING -p tcp -m tcp --tcp-flags SYN,FIN SYN,FIN -j DROP
-I PREROUTING -p tcp -m tcp --tcp-flags SYN,RST SYN,RST -j DROP
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "drop what is invalid before connection tracking",
        iptables: r#"*raw
-I OUTPUT -p tcp -m tcp --dport 443 -m conntrack --ctstate INVALID -j DROP
COMMIT
"#,
        packets: &["app service:80", "app other:443"],
        ..NONE
    },
    Situation {
        name: "a chain that is left by a goto",
        iptables: r#"*nat
:OWN -
-I OUTPUT -p tcp -m tcp --dport 443 -g OWN
-A OWN -m addrtype --dst-type LOCAL -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "nested chains with negations",
        iptables: r#"*nat
:ONE -
:TWO -
-I OUTPUT ! -p udp -j ONE
-A ONE -m addrtype --dst-type UNICAST -j TWO
-A TWO -p tcp -m tcp ! --dport 80 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "interfaces by number, nftables",
        nft: r#"table inet agent { chain pre { type filter hook prerouting priority -150; iif "eth0" tcp dport 8080 reject with tcp reset; }
 chain out { type filter hook output priority -150; oif != lo tcp dport 443 reject with tcp reset; }; }
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "sets of interfaces and ports, nftables",
        nft: r#"table inet agent { set ports { type inet_service; flags interval; elements = { 100-200, 440-450 }; }
 chain out { type filter hook output priority -150; oifname { "eth0", "eth1" } tcp dport @ports reject with tcp reset; }; }
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "marks by bits, nftables",
        nft: r#"table inet agent { chain out { type filter hook output priority -150; meta mark & 0x10 == 0x10 reject; meta mark & 0x10 == 0 tcp dport 443 reject with tcp reset; }; }
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "TPROXY beside an accept by states",
        options: &["-m", "TPROXY"],
        iptables: r#"*mangle
-I PREROUTING -p tcp -m conntrack --ctstate ESTABLISHED -m comment --comment "fast path" -j ACCEPT
COMMIT
"#,
        packets: &["outside pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "TPROXY beside an accept of clients",
        options: &["-m", "TPROXY"],
        iptables: r#"*mangle
-4 -I PREROUTING -p tcp -m iprange --src-range 10.1.0.1-10.1.0.9 -m tcp --dport 8080 -j ACCEPT
-6 -I PREROUTING -p tcp -m iprange --src-range fd00:1::1-fd00:1::9 -m tcp --dport 8080 -j ACCEPT
COMMIT
"#,
        packets: &["outside pod:8080"],
        ..NONE
    },
];
