#!/bin/bash
# Rules that iptables-translate translates without a remark, given to nft of the same release.
. "$(dirname "$0")/lib.sh"
guess 'what iptables-translate does not comment out can be loaded by nft'
debian trixie iptables=1.8.11-2 nftables=1.1.3-1
start
on trixie nft 'add table ip mangle; add chain ip mangle FORWARD { type filter hook forward priority -150; }'
try() {
    translated=$(on trixie iptables-translate -t mangle -A FORWARD "$@" | sed "s/^nft '//;s/'\$//")
    code=0
    on trixie nft -c "$translated" >/dev/null 2>&1 || code=$?
    printf '%s; exit %s' "${translated#add rule ip mangle FORWARD }" "$code"
}
expect '-j TOS --set-tos 0x10: a statement of IPv6' 'counter ip6 dscp set 0x04; exit 1' "$(try -j TOS --set-tos 0x10)"
expect '--timestart 22:00 --timestop 06:00: a range that ends before it begins' \
    ' meta hour "22:00:00"-"06:00:00" counter accept; exit 1' "$(try -m time --timestart 22:00 --timestop 06:00 -j ACCEPT)"
expect '--ctstatus NONE: no value' 'ct status counter accept; exit 1' "$(try -m conntrack --ctstatus NONE -j ACCEPT)"
expect '--timestart 09:00 --timestop 17:00, for comparison' \
    ' meta hour "09:00:00"-"17:00:00" counter accept; exit 0' "$(try -m time --timestart 09:00 --timestop 17:00 -j ACCEPT)"
