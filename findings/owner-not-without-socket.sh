#!/bin/bash
# Packets that the kernel sends itself: `! --uid-owner 1337` and what iptables-translate and nft make of it.
. "$(dirname "$0")/lib.sh"
guess '`-m owner ! --uid-owner 1337` and `meta skuid != 1337` match the same packets'
debian trixie iptables=1.8.11-2 nftables=1.1.3-1 iproute2=6.15.0-1
start
on trixie ip link set lo up

expect 'iptables-translate' "nft 'add rule ip filter OUTPUT skuid != 1337 counter accept'" \
    "$(on trixie iptables-translate -A OUTPUT -m owner ! --uid-owner 1337 -j ACCEPT)"
on trixie iptables-nft -A OUTPUT -p icmp -m owner ! --uid-owner 1337
on trixie nft 'add table ip t; add chain ip t o { type filter hook output priority 0; }
    add rule ip t o meta l4proto icmp meta skuid != 1337 counter
    add rule ip t o meta l4proto icmp meta skuid 0-4294967295 counter'
# Nothing listens on the port: the kernel answers with ICMP port unreachable.
inside bash -c 'exec 3<>/dev/udp/127.0.0.1/1001; echo >&3' 2>/dev/null || true
expect 'ICMP packets that ! --uid-owner 1337 matches' 1 "$(counters trixie ip filter OUTPUT)"
expect 'that skuid != 1337 and skuid 0-4294967295 match' '0 0' "$(counters trixie ip t o)"
