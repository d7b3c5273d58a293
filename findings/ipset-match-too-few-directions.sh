#!/bin/bash
# A set of addresses with ports, tested with one direction instead of two.
. "$(dirname "$0")/lib.sh"
guess '`--match-set SET dst` on a set of two dimensions is refused, or tests the address only'
debian bookworm iptables=1.8.9-2 ipset=7.17-1 iproute2=6.1.0-3
debian trixie iptables=1.8.11-2 ipset=7.22-1+b1 iproute2=6.15.0-1
start
on bookworm ip link set lo up
on bookworm ipset create services hash:ip,port
on bookworm ipset add services 127.0.0.1,udp:9
# The packets of 127.0.0.1:9 that match, of one that is sent; or what iptables says.
matched() {
    local suite=$1 variant=$2
    shift 2
    on "$suite" "$variant" -A OUTPUT -p udp -m set "$@" 2>"$folder/error" || { echo refused; return; }
    inside bash -c 'echo >/dev/udp/127.0.0.1/9'
    on "$suite" "$variant" -nvxL OUTPUT 2>/dev/null | awk 'NR == 3 { print $1 }'
    on "$suite" "$variant" -F OUTPUT
}
for suite in bookworm trixie; do
    for variant in iptables-nft iptables-legacy; do
        expect "$suite, $variant: dst,dst (address and port)" 1 "$(matched "$suite" "$variant" --match-set services dst,dst)"
        expect "$suite, $variant: dst" 0 "$(matched "$suite" "$variant" --match-set services dst)"
        expect "$suite, $variant: ! dst" 1 "$(matched "$suite" "$variant" ! --match-set services dst)"
        expect "$suite, $variant: dst,dst,dst" 1 "$(matched "$suite" "$variant" --match-set services dst,dst,dst)"
    done
done
