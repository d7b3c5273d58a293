//! The set-ups. Rules of iptables are in the form of the restore tools: `-4` and `-6` select those of one family.

use crate::lab::Backend;

/// What another program, or a person, puts into the namespace of a pod, and packets that meet it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) name: &'static str,
    pub(super) options: &'static [&'static str],
    pub(super) iptables: &'static str,
    pub(super) nft: &'static str,
    pub(super) ip: &'static str,
    pub(super) packets: &'static [&'static str],
}

impl Situation {
    /// Rules of iptables are tried with the same variant, those of nftables beside each backend.
    pub(super) fn is_for(&self, backend: Backend) -> bool {
        self.iptables.is_empty() || backend != Backend::Native
    }
}

const NONE: Situation = Situation { name: "", options: &[], iptables: "", nft: "", ip: "", packets: &[] };

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        name: "kube-proxy service by DNAT",
        iptables: r#"*nat
:KUBE-SERVICES -
:KUBE-SVC -
:KUBE-SEP -
:KUBE-MARK-MASQ -
-I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-4 -A KUBE-SERVICES -d 192.0.2.10/32 -p tcp -m comment --comment "default/web" -m tcp --dport 443 -j KUBE-SVC
-6 -A KUBE-SERVICES -d 2001:db8:2::10/128 -p tcp -m comment --comment "default/web" -m tcp --dport 443 -j KUBE-SVC
-4 -A KUBE-SVC ! -s 10.1.0.0/16 -j KUBE-MARK-MASQ
-6 -A KUBE-SVC ! -s fd00:1::/64 -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SVC -j KUBE-SEP
-4 -A KUBE-SEP -p tcp -m tcp -j DNAT --to-destination 198.51.100.10:443
-6 -A KUBE-SEP -p tcp -m tcp -j DNAT --to-destination [2001:db8:3::10]:443
COMMIT
"#,
        packets: &["app service:80", "app service:443", "app other:443", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "kube-proxy node ports by address type",
        iptables: r#"*nat
:KUBE-NODEPORTS -
-I PREROUTING -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-I OUTPUT -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 8443
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080", "app pod:8080"],
        ..NONE
    },
    Situation {
        name: "kube-proxy masquerade",
        iptables: r#"*nat
:KUBE-POSTROUTING -
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "kube-proxy rejects services without endpoints",
        iptables: r#"*filter
:KUBE-SERVICES -
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES
-4 -A KUBE-SERVICES -d 192.0.2.10/32 -p tcp -m tcp --dport 443 -j REJECT --reject-with icmp-port-unreachable
-6 -A KUBE-SERVICES -d 2001:db8:2::10/128 -p tcp -m tcp --dport 443 -j REJECT --reject-with icmp6-port-unreachable
COMMIT
"#,
        packets: &["app service:443", "app service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "kube-proxy firewall drops unmarked invalid packets",
        iptables: r#"*filter
:KUBE-FIREWALL -
-A OUTPUT -j KUBE-FIREWALL
-A INPUT -j KUBE-FIREWALL
-4 -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-6 -A KUBE-FIREWALL ! -s ::1/128 -d ::1/128 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "kube-proxy with nftables, a service by a verdict map",
        nft: r#"table ip kube { map ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 192.0.2.10 . tcp . 443 : goto svc }; }
 chain svc { meta l4proto tcp dnat to 198.51.100.10:443; }
 chain out { type nat hook output priority -110; ip daddr . meta l4proto . th dport vmap @ips; }; }
table ip6 kube { map ips { type ipv6_addr . inet_proto . inet_service : verdict; elements = { 2001:db8:2::10 . tcp . 443 : goto svc }; }
 chain svc { meta l4proto tcp dnat to [2001:db8:3::10]:443; }
 chain out { type nat hook output priority -110; ip6 daddr . meta l4proto . th dport vmap @ips; }; }
"#,
        packets: &["app service:443", "app service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "kube-proxy with nftables rejects a service",
        nft: r#"table inet kube { chain reject-chain { reject; }
 chain out { type filter hook output priority -110; tcp dport vmap { 443 : goto reject-chain }; }; }
"#,
        packets: &["app service:443", "app service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Calico accepts by its mark",
        iptables: r#"*mangle
:cali-PREROUTING -
-I PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
*nat
:cali-OUTPUT -
-I OUTPUT -j cali-OUTPUT
-A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Calico with TPROXY accepts by its mark",
        options: &["-m", "TPROXY"],
        iptables: r#"*mangle
:cali-PREROUTING -
-I PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
"#,
        packets: &["outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Calico drops by policy in the pod",
        options: &["-x", "198.51.100.0/24,2001:db8:3::/48"],
        iptables: r#"*filter
:cali-tw -
-I OUTPUT ! -o lo -p tcp -j cali-tw
-4 -A cali-tw -m iprange --dst-range 198.51.100.1-198.51.100.99 -j DROP
-6 -A cali-tw -m iprange --dst-range 2001:db8:3::1-2001:db8:3::99 -j DROP
COMMIT
"#,
        packets: &["app other:443", "app service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Cilium does not track its proxy",
        iptables: r#"*raw
:CILIUM_PRE_raw -
-I PREROUTING -j CILIUM_PRE_raw
-A CILIUM_PRE_raw -m mark --mark 0x200/0xf00 -j CT --notrack
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Cilium marks packets of the host",
        iptables: r#"*filter
:CILIUM_OUTPUT -
-A OUTPUT -j CILIUM_OUTPUT
-A CILIUM_OUTPUT -m mark ! --mark 0xe00/0xf00 -m mark ! --mark 0xd00/0xf00 -j MARK --set-xmark 0xc00/0xf00
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Cilium masquerades",
        iptables: r#"*nat
:CILIUM_POST_nat -
-A POSTROUTING -j CILIUM_POST_nat
-A CILIUM_POST_nat -o eth0 -j MASQUERADE
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Docker's published port",
        iptables: r#"*nat
:DOCKER -
-I PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-4 -I OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-6 -I OUTPUT ! -d ::1/128 -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 8443
COMMIT
"#,
        packets: &["outside pod:8080", "outside pod:8443", "app pod:8080", "app service:80"],
        ..NONE
    },
    Situation {
        name: "Docker protects containers in raw",
        iptables: r#"*raw
-4 -I PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP
-6 -I PREROUTING -d fd00:17::2/128 ! -i docker0 -j DROP
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Docker's name server in a container",
        iptables: r#"*nat
:DOCKER_OUTPUT -
-4 -I OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT
-4 -A DOCKER_OUTPUT -d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.11:38951
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "app loopback:8080"],
        ..NONE
    },
    Situation {
        name: "Podman's ports with netavark",
        nft: r#"table inet netavark { chain PRE { type nat hook prerouting priority -110; fib daddr type local jump PORTS; }
 chain OUT { type nat hook output priority -110; fib daddr type local jump PORTS; }
 chain PORTS { tcp dport 8080 redirect to :8443; }; }
"#,
        packets: &["outside pod:8080", "outside pod:8443", "app service:80"],
        ..NONE
    },
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
        packets: &["app other:443", "outside pod:8080"],
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
