#!/bin/bash
# `iptables -D` where `nft` has added a rule with a set, and iptables one without tests.
. "$(dirname "$0")/lib.sh"
guess 'it deletes the rule with the tests that it was given: that of iptables'
debian bookworm iptables=1.8.9-2
debian trixie iptables=1.8.11-2 nftables=1.1.3-1
start

own='ip protocol tcp counter packets 0 bytes 0 return'
set='meta l4proto tcp ip daddr { 10.0.0.1, 10.0.0.2 } return'
range='meta l4proto tcp ip daddr 10.0.0.1-10.0.0.2 return'

left() { # left SUITE RULE...: the rules that are left behind `-D OUTPUT -p tcp -j RETURN`
    local code=0
    on trixie nft flush ruleset
    on trixie iptables-nft -t nat -A OUTPUT -p udp -j ACCEPT
    for rule in "${@:2}"; do
        if [ "$rule" = "$own" ]; then
            on trixie iptables-nft -t nat -A OUTPUT -p tcp -j RETURN
        else
            on trixie nft add rule ip nat OUTPUT "$rule"
        fi
    done
    on "$1" iptables-nft -t nat -D OUTPUT -p tcp -j RETURN >"$folder/messages" 2>&1 || code=$?
    echo "$(on trixie nft list chain ip nat OUTPUT | grep -o 'meta.*return\|ip .*return' | paste -sd '|'), exit $code"
}
for suite in bookworm trixie; do
    expect "$suite, a rule with a set before its own" "$own, exit 0" "$(left "$suite" "$set" "$own")"
    expect "$suite, its own before that" "$set, exit 0" "$(left "$suite" "$own" "$set")"
    expect "$suite, the rule with a set alone" ', exit 0' "$(left "$suite" "$set")"
    expect "$suite, one with a range before its own" "$range|$own, exit 3" "$(left "$suite" "$range" "$own")"
    expect "$suite, and its message" 'Error: range with unknown payload base' "$(head -n 1 "$folder/messages")"
done
