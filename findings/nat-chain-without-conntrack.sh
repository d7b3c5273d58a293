#!/bin/bash
# A base chain of type nat with a rule that drops, and nothing else: does a new connection meet it?
. "$(dirname "$0")/lib.sh"
guess 'a chain of type nat needs connection tracking and switches it on: the first packet of each connection meets the rule'
debian bookworm nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 iptables=1.8.9-2
start
nft() { on bookworm nft "$@"; }
on bookworm ip link set lo up
send() { inside bash -c 'echo >/dev/udp/127.0.0.1/9' 2>/dev/null || true; }
hits() { nft list chain ip t c | sed -n 's/.*counter packets \([0-9]*\).*/\1/p'; }
nft 'table ip t { chain c { type nat hook output priority -100; udp dport 9 counter drop; }; }'
send
expect 'packets that meet the rule' 0 "$(hits)"
nft 'table ip other { chain c { type filter hook forward priority 0; ct state new; }; }'
send
expect 'with a rule of another table that names ct, in a hook that no packet passes' 1 "$(hits)"
nft 'delete table ip other'
sleep 1
send
expect 'after that rule is gone' 1 "$(hits)"
nft 'add rule ip t c udp dport 10 redirect to :11'
send
expect 'with a redirect for another port' 2 "$(hits)"
nft 'flush ruleset'
for variant in iptables-nft iptables-legacy; do
    on bookworm "$variant" -t nat -A OUTPUT -p udp --dport 9 -j ACCEPT
    sleep 1
    send
    expect "$variant: packets that meet -t nat -A OUTPUT -p udp --dport 9 -j ACCEPT" 0 \
        "$(on bookworm "$variant" -t nat -L OUTPUT -v -n -x | awk '/ACCEPT .*dpt:9/ { print $1 }')"
done
seen 'connection tracking is switched on by expressions (ct, redirect, dnat), for the whole network namespace, not by the type of the chain: without it a nat chain sees nothing'
