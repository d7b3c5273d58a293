#!/bin/bash
# `conntrack -F -f ipv6`, to make connections of one family meet new rules.
. "$(dirname "$0")/lib.sh"
guess 'it empties the IPv6 part of the table, as `-L -f ipv6` lists that part'
debian bookworm conntrack=1:1.4.7-1+b2 iptables=1.8.9-2 iproute2=6.1.0-3
debian trixie conntrack=1:1.4.8-2
start
on bookworm ip link set lo up
for tool in iptables-nft ip6tables-nft; do on bookworm "$tool" -A OUTPUT -m conntrack --ctstate INVALID -j DROP; done
families() { on "$suite" conntrack -L -f ipv4 2>/dev/null | wc -l; on "$suite" conntrack -L -f ipv6 2>/dev/null | wc -l; }
for suite in bookworm trixie; do
    for command in '-D -f ipv6' '-F -f ipv6'; do
        inside bash -c 'echo >/dev/udp/127.0.0.1/9; echo >/dev/udp/::1/9'
        expect "$suite: entries of IPv4, of IPv6" '1 1' "$(families | paste -sd' ')"
        # shellcheck disable=SC2086
        on "$suite" conntrack $command >/dev/null 2>&1
        expect "$suite: after conntrack $command" "$([ "$command" = '-D -f ipv6' ] && echo '1 0' || echo '0 0')" "$(families | paste -sd' ')"
        on "$suite" conntrack -F 2>/dev/null
    done
done
