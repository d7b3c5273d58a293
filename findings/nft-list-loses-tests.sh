#!/bin/bash
# `nft list ruleset` and `iptables-translate` on rules of iptables-nft whose match has two parts.
. "$(dirname "$0")/lib.sh"
guess 'nft prints an iptables rule with all of its tests, or marks it as not translatable'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
debian trixie iptables=1.8.11-2 nftables=1.1.3-1
start
on bookworm ip link set lo up

rule() { on bookworm iptables-nft -t mangle -A OUTPUT -p udp --dport "$@" -j ACCEPT; }
rule 1001 -m conntrack --ctstate NEW,DNAT
rule 1002 -m conntrack ! --ctstate NEW,DNAT
rule 1003 -m addrtype --src-type LOCAL --dst-type UNICAST
send() { for port in 1001 1002 1003; do inside bash -c "echo >/dev/udp/127.0.0.1/$port" 2>/dev/null || true; done; }
send
expect 'packets counted by the three rules in the kernel' '1 0 0' "$(counters bookworm ip mangle OUTPUT)"

listed='udp dport 1001 ct status dnat
udp dport 1002 ct status dnat
udp dport 1003 fib saddr type local'
for suite in bookworm trixie; do
    on "$suite" nft list table ip mangle >"$folder/listing" 2>/dev/null
    expect "nft list on $suite: NEW is gone, ! is gone, --dst-type is gone" "$listed" \
        "$(sed -n 's/^\t\t\(udp.*\) counter.*/\1/p' "$folder/listing")"
done

translated=$(on trixie iptables-translate -A OUTPUT -m conntrack --ctstate NEW,DNAT -j ACCEPT)
expect 'iptables-translate 1.8.11' "nft 'add rule ip filter OUTPUT ct status dnat counter accept'" "$translated"

on trixie nft flush ruleset
sed 's/packets [0-9]* bytes [0-9]*//' "$folder/listing" >"$folder/trixie/tmp/rules"
on trixie nft -f /tmp/rules
send
expect 'packets counted after nft loaded its own listing, exit 0' '0 0 1' "$(counters trixie ip mangle OUTPUT)"
