//! What firewalls, tunnels and other meshes put beside our rules.

use super::situation::{NONE, Situation};

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        name: "firewalld lets in by zones",
        nft: r#"table inet firewalld { chain in { type filter hook input priority 10; ct state { established, related } accept; ct status dnat accept; iifname "lo" accept; ct state invalid drop; jump zones; reject with icmpx admin-prohibited; }
 chain zones { tcp dport { 7000, 15006 } accept; meta l4proto ipv6-icmp accept; }; }
"#,
        packets: &["outside pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "firewalld lets nothing in but one port",
        nft: r#"table inet firewalld { chain in { type filter hook input priority 10; ct state { established, related } accept; iifname "lo" accept; ct state invalid drop; tcp dport { 22, 7000 } accept; meta l4proto ipv6-icmp accept; reject with icmpx admin-prohibited; }; }
"#,
        packets: &["outside pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "firewalld, states by a map",
        nft: r#"table inet firewalld { chain in { type filter hook input priority 10; policy drop; ct state vmap { established : accept, related : accept, invalid : drop }; iif lo accept; meta l4proto ipv6-icmp accept; tcp dport { 7000, 15006 } accept; }; }
"#,
        packets: &["outside pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "firewalld 2.3 filters by the reverse path",
        nft: r#"table inet firewalld { chain filter_PREROUTING { type filter hook prerouting priority filter + 10; policy accept; icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept; meta nfproto ipv6 fib saddr . mark . iif oif missing drop; }; }
"#,
        packets: &["outside pod:8080", "app service:80", "proxy service:80", "app pod:8080"],
        ..NONE
    },
    Situation {
        name: "reverse path filter of nftables, by any interface and without the mark",
        nft: r#"table inet paths { chain pre { type filter hook prerouting priority raw; fib saddr oif missing drop; fib saddr . iif oif eq 0 drop; }; }
"#,
        packets: &["outside pod:8080", "app service:80", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "reverse path filter of nftables: packets whose source has a route back are dropped",
        nft: r#"table inet paths { chain pre { type filter hook prerouting priority raw; iifname != "lo" fib saddr . iif oif exists tcp dport 8080 drop; }; }
"#,
        packets: &["outside pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "firewalld 2.3 with iptables",
        iptables: r#"*mangle
:PREROUTING_direct -
-A PREROUTING -j PREROUTING_direct
-6 -A PREROUTING -p ipv6-icmp -m icmp6 --icmpv6-type 134 -j ACCEPT
-6 -A PREROUTING -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT
-6 -A PREROUTING -m rpfilter --validmark --invert -j DROP
COMMIT
"#,
        packets: &["outside pod:8080", "app service:80", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "rpfilter without options drops what is known",
        iptables: r#"*raw
-A PREROUTING ! -i lo -p tcp -m tcp --dport 8080 -m rpfilter -j DROP
-A PREROUTING ! -i lo -p tcp -m tcp --dport 8443 -m rpfilter --loose --invert -j DROP
COMMIT
"#,
        packets: &["outside pod:8080", "outside pod:8443", "app service:80"],
        ..NONE
    },
    Situation {
        name: "ufw 0.36.2 drops routing headers",
        iptables: r#"*filter
:ufw-before-input -
:ufw-before-output -
-A INPUT -j ufw-before-input
-A OUTPUT -j ufw-before-output
-6 -A ufw-before-input -m rt --rt-type 0 -j DROP
-6 -A ufw-before-output -m rt --rt-type 0 -j DROP
-6 -A ufw-before-input -m frag ! --fragid 0 -j DROP
-6 -A ufw-before-input -m hbh ! --hbh-len 0 -j DROP
COMMIT
"#,
        packets: &["outside pod:8080", "app service:80", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "extension headers in nftables",
        nft: r#"table ip6 headers { chain in { type filter hook input priority 0; rt type 0 drop; frag id != 0 drop; hbh hdrlength 0 drop; }; chain out { type filter hook output priority 0; rt type 0 drop; }; }
"#,
        packets: &["outside pod:8080", "app service:80", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "ufw lets the captured port in",
        iptables: r#"*filter
:ufw-before -
-A INPUT -j ufw-before
-A ufw-before -i lo -j ACCEPT
-A ufw-before -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before -m conntrack --ctstate INVALID -j DROP
-6 -A ufw-before -p ipv6-icmp -j ACCEPT
-A ufw-before -p tcp -m multiport --dports 7000,15006 -j ACCEPT
-A INPUT -j DROP
COMMIT
"#,
        packets: &["outside pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "ufw lets only the app's port in",
        iptables: r#"*filter
:ufw-before -
-A INPUT -j ufw-before
-A ufw-before -i lo -j ACCEPT
-A ufw-before -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-6 -A ufw-before -p ipv6-icmp -j ACCEPT
-A ufw-before -p tcp -m multiport --dports 7000,8080 -j ACCEPT
-A INPUT -j DROP
COMMIT
"#,
        packets: &["outside pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "a host's firewall by address types",
        iptables: r#"*filter
-A INPUT -i lo -j ACCEPT
-6 -A INPUT -p ipv6-icmp -j ACCEPT
-A INPUT -m addrtype ! --dst-type LOCAL -j DROP
-A INPUT -m addrtype --src-type LOCAL ! --dst-type LOCAL -j DROP
COMMIT
"#,
        packets: &["outside pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "outbound allow list of ranges",
        iptables: r#"*filter
-4 -A OUTPUT ! -o lo -p tcp -m iprange ! --dst-range 192.0.2.1-192.0.2.20 -m tcp --syn -j REJECT
-6 -A OUTPUT ! -o lo -p tcp -m iprange ! --dst-range 2001:db8:2::1-2001:db8:2::20 -m tcp --syn -j REJECT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "wg-quick drops what claims the tunnel's address",
        iptables: r#"*raw
-4 -I PREROUTING -d 10.66.0.2/32 ! -i wg0 -m addrtype ! --src-type LOCAL -j DROP
-6 -I PREROUTING -d fd00:66::2/128 ! -i wg0 -m addrtype ! --src-type LOCAL -j DROP
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "wg-quick with nftables",
        nft: r#"table ip wg { chain preraw { type filter hook prerouting priority -300; iifname != "wg0" ip daddr 10.66.0.2 fib saddr type != local drop; }; }
table ip6 wg { chain preraw { type filter hook prerouting priority -300; iifname != "wg0" ip6 daddr fd00:66::2 fib saddr type != local drop; }; }
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "kill switch of a VPN",
        options: &["-x", "198.51.100.0/24,2001:db8:3::/48"],
        iptables: r#"*filter
-4 -A OUTPUT ! -o wg0 -m mark ! --mark 0xca6c -m addrtype ! --dst-type LOCAL -p tcp -m tcp --dport 443 -j REJECT
-6 -A OUTPUT ! -o wg0 -m mark ! --mark 0xca6c -m addrtype ! --dst-type LOCAL -p tcp -m tcp --dport 443 -j REJECT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80"],
        ..NONE
    },
    Situation {
        name: "Tailscale drops its range from elsewhere",
        iptables: r#"*filter
:ts-input -
-A INPUT -j ts-input
-4 -A ts-input -s 100.64.0.0/10 ! -i tailscale0 -j DROP
-A ts-input -i tailscale0 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Linkerd's rules before ours",
        iptables: r#"*nat
:PROXY_INIT_REDIRECT -
:PROXY_INIT_OUTPUT -
-I PREROUTING -j PROXY_INIT_REDIRECT
-I OUTPUT -j PROXY_INIT_OUTPUT
-A PROXY_INIT_REDIRECT -p tcp -m multiport --dports 4190,4191,7000 -j RETURN
-A PROXY_INIT_REDIRECT -p tcp -j REDIRECT --to-ports 4143
-A PROXY_INIT_OUTPUT -m owner --uid-owner 2102 -j RETURN
-A PROXY_INIT_OUTPUT -o lo -j RETURN
-A PROXY_INIT_OUTPUT -p tcp -m multiport --dports 4567,4568 -j RETURN
-A PROXY_INIT_OUTPUT -p tcp -j REDIRECT --to-ports 4140
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Linkerd's rules behind ours",
        iptables: r#"*nat
:PROXY_INIT_OUTPUT -
-A OUTPUT -j PROXY_INIT_OUTPUT
-A PROXY_INIT_OUTPUT -m owner --uid-owner 2102 -j RETURN
-A PROXY_INIT_OUTPUT -p tcp -j REDIRECT --to-ports 4140
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "an ambient leftover accepts by connection mark",
        iptables: r#"*nat
:AMBIENT -
-I OUTPUT -j AMBIENT
-A AMBIENT -p tcp -m connmark --mark 0x111/0xfff -j ACCEPT
-A AMBIENT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT
-4 -A AMBIENT -d 169.254.7.127/32 -p tcp -m tcp -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "users of a sidecar of another mesh are left out",
        iptables: r#"*nat
-I OUTPUT -p tcp -m owner --uid-owner 1400-1600 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "uid:1500 service:80", "uid:2001 service:80"],
        ..NONE
    },
    Situation {
        name: "all but one user are left out",
        iptables: r#"*nat
-I OUTPUT -p tcp -m owner ! --uid-owner 1500 -j RETURN
COMMIT
"#,
        packets: &["app service:80", "uid:1500 service:80"],
        ..NONE
    },
    Situation {
        name: "a group is left out",
        iptables: r#"*nat
-I OUTPUT -p tcp -m owner --gid-owner 100-199 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "uid:101 service:80"],
        ..NONE
    },
    Situation {
        name: "a user is left out with nftables",
        nft: r#"table inet agent { chain out { type nat hook output priority -110; meta skuid 1400-1600 meta l4proto tcp redirect to :4140; }; }
"#,
        packets: &["app service:80", "uid:1500 service:80"],
        ..NONE
    },
    Situation {
        name: "fail2ban with chains",
        iptables: r#"*filter
:f2b -
-I INPUT -p tcp -m multiport --dports 22,15006 -j f2b
-4 -A f2b -s 10.1.0.1/32 -j REJECT --reject-with icmp-port-unreachable
-6 -A f2b -s fd00:1::1/128 -j REJECT --reject-with icmp6-port-unreachable
-A f2b -j RETURN
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "fail2ban with a set",
        nft: r#"table inet f2b { set v4 { type ipv4_addr; flags timeout; elements = { 10.1.0.1 timeout 1h }; }
 set v6 { type ipv6_addr; flags interval; elements = { fd00:1::/120 }; }
 chain in { type filter hook input priority -1; tcp dport { 22, 15006 } ip saddr @v4 reject; tcp dport { 22, 15006 } ip6 saddr @v6 reject; }; }
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "fail2ban with a set of others",
        nft: r#"table inet f2b { set v4 { type ipv4_addr; flags timeout; elements = { 10.9.0.1 timeout 1h }; }
 chain in { type filter hook input priority -1; tcp dport { 22, 15006 } ip saddr @v4 reject; }; }
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "node-local DNS is not tracked",
        iptables: r#"*raw
-4 -I PREROUTING -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -j CT --notrack
-4 -I OUTPUT -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -j CT --notrack
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Multus with a second network",
        ip: "link add net1 type veth peer name net1-peer\n\
             link set net1-peer up\n\
             link set net1 up\n\
             -4 address add 10.20.0.2/24 dev net1\n\
             -4 rule add from 10.20.0.2 table 100\n\
             -4 route add default via 10.20.0.1 dev net1 table 100",
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Multus with rules for its interface",
        iptables: r#"*nat
-I PREROUTING -i net1 -j ACCEPT
-I OUTPUT -o net1 -j ACCEPT
-I PREROUTING ! -i eth+ -p tcp -m tcp --dport 8080 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Linkerd's inbound rules behind ours",
        iptables: r#"*nat
:PROXY_INIT_REDIRECT -
-A PREROUTING -m comment --comment "proxy-init/install-proxy-init-prerouting" -j PROXY_INIT_REDIRECT
-A PROXY_INIT_REDIRECT -p tcp -m multiport --dports 4190,4191,7000 -j RETURN
-A PROXY_INIT_REDIRECT -p tcp -j REDIRECT --to-ports 4143
COMMIT
"#,
        packets: &["outside pod:8080", "outside pod:15008"],
        ..NONE
    },
];
