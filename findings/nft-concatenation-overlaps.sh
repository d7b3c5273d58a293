#!/bin/bash
# Overlapping elements in a map of concatenated intervals, added in both orders.
. "$(dirname "$0")/lib.sh"
guess 'overlaps are refused in any order, as in a map of plain intervals; if two were accepted, the narrower would win, or the first'
debian bookworm nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
debian trixie nftables=1.1.3-1 iproute2=6.15.0-1
start
on trixie ip link set lo up
on trixie ip route add local 10.0.0.0/8 dev lo
wide='10.0.0.0/8 . 80 : 1'
narrow='10.1.0.0/16 . 80 : 2'
add() {
    on "$1" nft add element ip t m "{ $2 }" 2>/dev/null && echo accepted || echo refused
}
# The mark that a packet to 10.1.0.1, which both elements hold, gets.
mark() {
    on trixie nft flush chain ip t o
    on trixie nft 'add rule ip t o meta mark set ip daddr . udp dport map @m
        add rule ip t o meta mark 1 counter; add rule ip t o meta mark 2 counter'
    inside bash -c 'echo >/dev/udp/10.1.0.1/80'
    counters trixie ip t o
}
for suite in bookworm trixie; do
    on "$suite" nft 'add table ip t; add map ip t m { type ipv4_addr . inet_service : mark; flags interval; }
        add chain ip t o { type filter hook output priority 0; }'
    expect "$suite: the wide one, then the narrow one" 'accepted refused' "$(add "$suite" "$wide") $(add "$suite" "$narrow")"
    on "$suite" nft flush map ip t m
    expect "$suite: the narrow one, then the wide one" 'accepted accepted' "$(add "$suite" "$narrow") $(add "$suite" "$wide")"
    expect "$suite: packets that are in both, with mark 1, with mark 2" '0 1' "$(mark)"
    on "$suite" nft delete element ip t m "{ $narrow }"
    expect "$suite: the narrow one, deleted and added again" refused "$(add "$suite" "$narrow")"
    on "$suite" nft flush ruleset
    on "$suite" nft 'add table ip t; add map ip t m { type ipv4_addr : mark; flags interval; }'
    expect "$suite: plain intervals, the narrow one first" 'accepted refused' "$(add "$suite" '10.1.0.0/16 : 2') $(add "$suite" '10.0.0.0/8 : 1')"
    on "$suite" nft flush ruleset
done
