#!/bin/bash
# `meta hour` and `meta day` of nftables in a time zone other than UTC, and what iptables-translate makes of `-m time`, which is UTC.
. "$(dirname "$0")/lib.sh"
guess 'hours and days are those of one time zone, as in -m time; a range that is valid in UTC is valid in every zone'
debian trixie iptables=1.8.11-2 nftables=1.1.3-1 iproute2=6.15.0-1
start
on trixie ip link set lo up
on trixie nft 'add table ip t; add chain ip t o { type filter hook output priority 0; }'
# Half a day away, so that the local day is another one whenever this runs.
now=$(date -u +%H)
if [ "$((10#$now))" -ge 12 ]; then away=EAST-12; else away=WEST12; fi
export TZ=$away
add() { on trixie nft "add rule ip t o udp dport 9 $1 counter"; }
add "meta hour \"$(date +%H):00\"-\"$(date +%H):59:59\""
add "meta day \"$(date +%A)\""
add "meta day \"$(date -u +%A)\""
inside bash -c 'echo >/dev/udp/127.0.0.1/9' 2>/dev/null || true
expect 'rules that matched: the local hour yes, the local day no, the day of UTC yes' '1 0 1' "$(counters trixie ip t o)"
on trixie nft flush chain ip t o

translated=$(on trixie iptables-translate -A o -m time --timestart 09:00 --timestop 17:00 -j ACCEPT | sed "s/.*o  \(.*\)'/\1/")
expect 'iptables-translate of 09:00 to 17:00 UTC, in every time zone' 'meta hour "09:00:00"-"17:00:00" counter accept' "$translated"
export TZ=EAST-9
on trixie nft "add rule ip t o $translated"
hours() { TZ=$1 on trixie nft list chain ip t o | grep -o '"[0-9:]*"-"[0-9:]*"'; }
expect 'loaded in a zone 9 hours east, listed there' '"09:00"-"17:00"' "$(hours EAST-9)"
expect 'the same rule listed in UTC' '"00:00"-"08:00"' "$(hours UTC)"
try() { TZ=$1 on trixie nft -c 'add rule ip t o meta hour "07:00"-"11:00" accept' >/dev/null 2>&1 && echo accepted || echo refused; }
expect '07:00 to 11:00 in UTC' accepted "$(try UTC)"
expect '07:00 to 11:00 in a zone 9 hours east' refused "$(try EAST-9)"
