#!/bin/bash
# iptables-nft of Debian 11 reads rules that iptables-nft of Debian 12 wrote (an image and its node).
. "$(dirname "$0")/lib.sh"
guess '1.8.7 prints the rules with all tests, or reports a rule that it cannot read; -D deletes what -A of 1.8.9 added'
debian bookworm iptables=1.8.9-2
debian bullseye iptables=1.8.7-1
start

on bookworm iptables-nft -A OUTPUT -p tcp --dport 15001 -j RETURN
on bookworm iptables-nft -A OUTPUT -p udp ! --sport 53 -j RETURN
on bookworm iptables-nft -A OUTPUT -m mark --mark 0x539 -j ACCEPT
on bookworm iptables-nft -A OUTPUT -p tcp -m multiport --dports 80,443 -j ACCEPT

expect 'iptables-nft-save 1.8.7, exit 0' '-A OUTPUT -p tcp -j RETURN
-A OUTPUT -p udp -j RETURN
-A OUTPUT -j ACCEPT
-A OUTPUT -p tcp -m multiport --dports 80,443 -j ACCEPT' "$(on bullseye iptables-nft-save 2>"$folder/messages" | grep ^-A)"
expect 'its messages' '' "$(cat "$folder/messages")"
code=0
on bullseye iptables-nft -D OUTPUT -p tcp --dport 15001 -j RETURN 2>/dev/null || code=$?
expect 'exit code of -D of the first rule with 1.8.7' 1 "$code"

on bullseye iptables-nft -F
on bullseye iptables-nft -A OUTPUT -p tcp --dport 15001 -j RETURN
expect 'the other direction is right' '-A OUTPUT -p tcp -m tcp --dport 15001 -j RETURN' \
    "$(on bookworm iptables-nft-save | grep ^-A)"
on bookworm iptables-nft -D OUTPUT -p tcp --dport 15001 -j RETURN
