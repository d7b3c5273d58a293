#!/bin/bash
# Rules that remember addresses, when their set or table is full.
. "$(dirname "$0")/lib.sh"
guess 'nft: an address that does not fit is not remembered, and the rest of the rule runs; hashlimit: the rule does not match'
debian trixie nftables=1.1.3-1 iptables=1.8.11-2 iproute2=6.15.0-1
start
on trixie ip link set lo up
# Sends to three addresses; prints what sending fails with.
send() {
    for address in 127.0.0.1 127.0.0.2 127.0.0.3; do
        inside bash -c "echo >/dev/udp/$address/9" 2>&1 | sed 's/.*: //'
    done | paste -sd,
}
for word in add update; do
    on trixie nft "add table ip t; add set ip t seen { type ipv4_addr; size 1; flags dynamic; }
        add chain ip t o { type filter hook output priority 0; }
        add rule ip t o udp dport 9 counter $word @seen { ip daddr } counter accept
        add rule ip t o udp dport 9 counter"
    send >/dev/null
    expect "nft, $word: packets before the set statement, behind it in the rule, in the next rule" '3 1 2' "$(counters trixie ip t o)"
    on trixie nft flush ruleset
done
for variant in iptables-nft iptables-legacy; do
    on trixie "$variant" -A OUTPUT -p udp -m hashlimit --hashlimit-upto 100/s --hashlimit-mode dstip --hashlimit-name seen \
        --hashlimit-htable-size 1 --hashlimit-htable-max 1 -j ACCEPT
    on trixie "$variant" -A OUTPUT -p udp -j ACCEPT
    expect "$variant, hashlimit: two of three datagrams fail" 'Operation not permitted,Operation not permitted' "$(send)"
    expect "$variant: packets of the rule with hashlimit, of the next rule" '1 0' \
        "$(on trixie "$variant" -nvxL OUTPUT | awk 'NR > 2 { print $1 }' | paste -sd' ')"
    on trixie "$variant" -F
done
