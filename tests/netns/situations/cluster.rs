//! What programs of a cluster or of a container runtime put beside our rules.

use super::situation::{NONE, Situation};

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
        name: "AWS VPC CNI marks connections of the primary interface",
        options: &["-m", "TPROXY"],
        iptables: r#"*mangle
-I PREROUTING -i eth0 -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80
-I PREROUTING -i eni+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
COMMIT
*nat
:AWS-SNAT-CHAIN-0 -
:AWS-CONNMARK-CHAIN-0 -
-A POSTROUTING -m comment --comment "AWS SNAT CHAIN" -j AWS-SNAT-CHAIN-0
-4 -A AWS-SNAT-CHAIN-0 ! -d 10.1.0.0/16 ! -o vlan+ -m addrtype ! --dst-type LOCAL -j SNAT --to-source 10.1.0.2 --random-fully
-I PREROUTING -i eni+ -m state --state NEW -j AWS-CONNMARK-CHAIN-0
-4 -A AWS-CONNMARK-CHAIN-0 ! -d 10.1.0.0/16 -j CONNMARK --set-xmark 0x80/0x80
-A PREROUTING -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
COMMIT
"#,
        ip: "rule add pref 1024 fwmark 0x80/0x80 lookup main",
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Calico tests the reverse path in raw",
        iptables: r#"*raw
:cali-PREROUTING -
:cali-rpf-skip -
-A PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -j cali-rpf-skip
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
-A cali-PREROUTING -m mark --mark 0x0/0x40000 -m rpfilter --invert -j ACCEPT
COMMIT
"#,
        packets: &["app service:80", "app other:443", "proxy service:80", "outside pod:8080"],
        ..NONE
    },
    Situation {
        name: "Cilium marks what has a transparent socket",
        options: &["-m", "TPROXY"],
        iptables: r#"*mangle
:CILIUM_PRE_mangle -
-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_mangle" -j CILIUM_PRE_mangle
-A CILIUM_PRE_mangle -m socket --transparent -m mark ! --mark 0xe00/0xf00 -m mark ! --mark 0x800/0xf00 -j MARK --set-xmark 0x200/0xffffffff
COMMIT
"#,
        packets: &["app service:80", "outside pod:8080"],
        ..NONE
    },
];
