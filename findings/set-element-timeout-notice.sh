#!/bin/bash
# An element of a set of nftables times out: a rule that looks it up matches no more. Is anyone told?
. "$(dirname "$0")/lib.sh"
guess 'the kernel announces the end of the element (nft monitor shows it), as it announces its deletion'
debian bookworm nftables=1.0.6-2+deb12u2
start
nft() { on bookworm nft "$@"; }
nft 'table ip t {
    set s { type ipv4_addr; flags timeout; }
    chain c { type filter hook output priority 0; ip daddr @s counter drop; }
}'
nft monitor >"$folder/events" &
monitor=$!
sleep 2
nft 'add element ip t s { 127.0.0.9 timeout 1s }'
sleep 8
listed=$(nft list set ip t s | grep -c 127.0.0.9 || true)
nft 'add element ip t s { 127.0.0.8 }'
nft 'delete element ip t s { 127.0.0.8 }'
sleep 2
stop "$monitor"
expect 'events' 'add element 127.0.0.9, add element 127.0.0.8, delete element 127.0.0.8' \
    "$(sed -n 's/^\(add\|delete\) element ip t s { \([0-9.]*\).*/\1 element \2/p' "$folder/events" | paste -sd , | sed 's/,/, /g')"
expect 'elements listed after the timeout' 0 "$listed"
seen 'nothing is announced when it times out: a program that waits for announcements misses that packets fare otherwise'
