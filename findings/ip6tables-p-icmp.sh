#!/bin/bash
# The protocol name icmp in ip6tables, and icmpv6 in iptables.
. "$(dirname "$0")/lib.sh"
guess 'refused, or icmp means ICMPv6 in ip6tables, as the man page names icmp among the protocols'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
debian trixie iptables=1.8.11-2
start
on bookworm ip link set lo up
for suite in bookworm trixie; do
    for variant in nft legacy; do
        for protocol in icmp icmpv6; do
            seen "$suite, ip6tables-$variant -p $protocol: $(on "$suite" ip6tables-$variant -A OUTPUT -p $protocol -j ACCEPT 2>&1; echo "exit $?")"
        done
        inside bash -c 'echo >/dev/udp/::1/9' 2>/dev/null || true
        expect "$suite, $variant: packets of -p icmp and -p icmpv6 after one ICMPv6 error" \
            '0 1' "$(on "$suite" ip6tables-$variant -L OUTPUT -v -n -x 2>/dev/null | awk '/ACCEPT/ && !/policy/ { print $1 }' | paste -sd' ')"
        on "$suite" ip6tables-$variant -F
    done
done
