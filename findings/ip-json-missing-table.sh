#!/bin/bash
# Routes of a table that has none, as `ip -j route show table N` gives them to a JSON parser.
. "$(dirname "$0")/lib.sh"
guess 'an empty list and exit code 0, in both families'
debian bookworm iproute2=6.1.0-3
debian trixie iproute2=6.15.0-1
start
on bookworm ip link set lo up
show() { on "$1" ip -j "$2" route show table 133 2>/dev/null; echo " exit $?"; }
for family in -4 -6; do
    expect "$family, 6.1: half a list" '[ exit 2' "$(show bookworm $family | paste -sd' ')"
    expect "$family, 6.15" '[] exit 2' "$(show trixie $family | paste -sd' ' | sed 's/  */ /')"
    on bookworm ip $family route add local default dev lo table 133
    on bookworm ip $family route del local default dev lo table 133
    expect "$family, 6.1, after a route was added and deleted" '[] exit 0' "$(show bookworm $family | paste -sd' ' | sed 's/  */ /g')"
done
