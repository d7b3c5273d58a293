#!/bin/bash
# A policy rule for packets without a mark.
. "$(dirname "$0")/lib.sh"
guess '`ip rule add fwmark 0` selects packets without a mark, as `fwmark 1` selects those with mark 1'
debian bookworm iproute2=6.1.0-3
debian trixie iproute2=6.15.0-1
start
table() { on "$1" ip "$2" route get "$3" mark "$4" | grep -o 'table [0-9]*' || echo main; }
for suite in bookworm trixie; do
    on "$suite" ip link set lo up
    for family in -4 -6; do
        destination=192.0.2.1
        [ "$family" = -4 ] || destination=2001:db8::1
        for table in main 133; do on "$suite" ip "$family" route replace local default dev lo table "$table"; done
        on "$suite" ip "$family" rule add pref 9 fwmark 0 lookup 133
        expect "$suite $family: fwmark 0 as listed" '9: from all lookup 133' \
            "$(on "$suite" ip "$family" rule show pref 9 | tr -s '\t ' ' ')"
        expect "$suite $family: a packet without a mark" 'table 133' "$(table "$suite" "$family" "$destination" 0)"
        expect "$suite $family: a packet with mark 5" 'table 133' "$(table "$suite" "$family" "$destination" 5)"
        on "$suite" ip "$family" rule del pref 9
        on "$suite" ip "$family" rule add pref 9 fwmark 0/0xffffffff lookup 133
        expect "$suite $family: fwmark 0/0xffffffff as listed" '9: from all fwmark 0 lookup 133' \
            "$(on "$suite" ip "$family" rule show pref 9 | tr -s '\t ' ' ')"
        expect "$suite $family: a packet with mark 5" main "$(table "$suite" "$family" "$destination" 5)"
        on "$suite" ip "$family" rule del pref 9
    done
done
