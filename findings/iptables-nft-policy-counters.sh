#!/bin/bash
# Packet counters of a chain's policy, which monitoring reads from `iptables -L -v` and `iptables-save -c`.
. "$(dirname "$0")/lib.sh"
guess 'the policy counts the packets that no rule took, in both variants and all versions'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
debian trixie iptables=1.8.11-2
start
on bookworm ip link set lo up
send() { inside bash -c 'echo >/dev/udp/127.0.0.1/9' 2>/dev/null || true; }
policy() { on "$1" "$2-save" -c -t filter 2>/dev/null | sed -n 's/^:OUTPUT ACCEPT //p'; }
try() {
    on "$1" "$2" -A OUTPUT -p udp --dport 1000 -j RETURN
    send
    policy "$1" "$2"
}
expect 'iptables-legacy 1.8.9: the packet and the ICMP error' '[2:86]' "$(try bookworm iptables-legacy)"
on bookworm iptables-legacy -F
expect 'iptables-nft 1.8.9' '[0:0]' "$(try bookworm iptables-nft)"
expect 'iptables-nft 1.8.11 on the chain that 1.8.9 made' '[0:0]' "$(send; policy trixie iptables-nft)"
on bookworm nft flush ruleset
expect 'iptables-nft 1.8.11 on its own chain' '[2:86]' "$(try trixie iptables-nft)"
expect 'iptables-nft 1.8.9 on that chain' '[4:172]' "$(send; policy bookworm iptables-nft)"
