#!/bin/bash
# `nft --debug=netlink`, the usual way to see what a rule really loads, on prefixes of `ct original`.
. "$(dirname "$0")/lib.sh"
guess 'a prefix is a bitwise and a compare of four bytes; rules with different meaning have different debug listings'
debian trixie nftables=1.1.3-1 iproute2=6.15.0-1
start
on trixie ip link set lo up
on trixie ip address add 10.1.2.3/32 dev lo
on trixie nft 'add table ip t; add chain ip t o { type filter hook output priority 0; }
    add rule ip t o meta l4proto udp ct original ip daddr 10.0.0.0/8 counter
    add rule ip t o meta l4proto udp ct original ip daddr 10.0.0.0 counter
    add rule ip t o meta l4proto udp ct original ip daddr 10.0.0.0/12 counter'
inside bash -c 'echo >/dev/udp/10.1.2.3/1001'
expect 'packets to 10.1.2.3 that /8, a single address and /12 match' '1 0 1' "$(counters trixie ip t o)"
expect 'debug listing: /8 equals the single address' \
    '[ ct load dst_ip => reg 1 , dir original ]
[ cmp eq reg 1 0x0000000a ]
[ ct load dst_ip => reg 1 , dir original ]
[ cmp eq reg 1 0x0000000a ]
[ ct load dst_ip => reg 1 , dir original ]
[ bitwise reg 1 = ( reg 1 & 0x0000f0ff ) ^ 0x00000000 ]
[ cmp eq reg 1 0x0000000a ]' \
    "$(on trixie nft --debug=netlink list ruleset | sed -n 's/^ *\(\[ .*\]\) *$/\1/p' | grep -v -e l4proto -e 0x00000011 -e counter)"
