#!/bin/bash
# Filters of the conntrack tool by zone and family, as used to delete entries of redirected DNS.
. "$(dirname "$0")/lib.sh"
guess '--zone 0 selects what is in no zone, --orig-zone 1 also what is in zone 1 both ways; no -f means both families in every version'
debian trixie conntrack=1:1.4.8-2 nftables=1.1.3-1 iproute2=6.15.0-1
debian bullseye conntrack=1:1.4.6-2
start
on trixie ip link set lo up
on trixie nft 'add table inet t; add chain inet t o { type filter hook output priority raw; }
    add rule inet t o udp dport 1001 ct zone set 1
    add rule inet t o udp dport 1002 ct original zone set 2
    add chain inet t p { type filter hook prerouting priority raw; }
    add rule inet t p udp dport 1001 ct zone set 1
    add chain inet t last { type filter hook output priority 0; }
    add rule inet t last ct state new counter'
inside bash -c 'for d in 127.0.0.1/1001 127.0.0.1/1002 127.0.0.1/1003 ::1/1004; do echo >/dev/udp/$d; done' 2>/dev/null || true
ports() { on "$1" conntrack "${@:2}" 2>/dev/null | sed -n 's/.*dport=\([0-9]*\) .*src=.*/\1/p' | sort | paste -sd' '; }
expect 'all, conntrack 1.4.8' '1001 1002 1003 1004' "$(ports trixie -L -p udp)"
expect 'all, conntrack 1.4.6: IPv4 only' '1001 1002 1003' "$(ports bullseye -L -p udp)"
expect '--zone 0: also the one with the original zone 2' '1002 1003 1004' "$(ports trixie -L -p udp --zone 0)"
expect '--orig-zone 1: not the one of zone 1' '' "$(ports trixie -L -p udp --orig-zone 1)"
expect '--orig-zone 2' '1002' "$(ports trixie -L -p udp --orig-zone 2)"
