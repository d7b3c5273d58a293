#!/bin/bash
# `iptables -Z`, with which counters are reset, while a program watches changes of rules.
. "$(dirname "$0")/lib.sh"
guess 'it sets counters to 0 and changes no rule, so what watches rules sees nothing; tokens of a limit stay used up'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
debian trixie iptables=1.8.11-2 nftables=1.1.3-1 iproute2=6.15.0-1
start
on bookworm ip link set lo up
packets() { on "$suite" nft list chain ip filter OUTPUT 2>/dev/null | sed -n 's/.*counter packets \([0-9]*\).*/\1/p' | paste -sd' '; }
send() { inside bash -c 'for _ in 1 2 3; do echo >/dev/udp/127.0.0.1/9; done'; }
# The announced changes of rules, while a command runs.
watch() {
    on "$suite" nft monitor rules >"$folder/events" &
    monitor=$!
    sleep 0.5
    "$@"
    sleep 0.5
    stop "$monitor"
    grep -o -e '^[a-z]* rule' "$folder/events" | paste -sd,
}
for suite in bookworm trixie; do
    on "$suite" iptables-nft -A OUTPUT -p udp --dport 9 -m limit --limit 1/hour --limit-burst 1
    on "$suite" iptables-nft -A OUTPUT -p udp --dport 9 -j ACCEPT
    send
    expect "$suite: packets of a rule with a limit of 1 per hour, of one without" '1 3' "$(packets)"
    expect "$suite: events of iptables -Z" 'delete rule,add rule,delete rule,add rule' "$(watch on "$suite" iptables-nft -Z OUTPUT)"
    send
    expect "$suite: packets after three more" '1 3' "$(packets)"
    on "$suite" nft flush ruleset
done
