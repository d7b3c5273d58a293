#!/bin/bash
# The slowest rate of the limit match that its help text offers, with the default burst.
. "$(dirname "$0")/lib.sh"
guess '--limit 1/day works in both variants'
debian bullseye iptables=1.8.7-1
debian trixie iptables=1.8.11-2
start
try() { on "$1" "iptables-$2" -A INPUT -m limit --limit "$3" --limit-burst "$4" -j ACCEPT >/dev/null 2>&1 && echo accepted || echo refused; }
expect '1/day, burst 5 (the default), nft 1.8.11' accepted "$(try trixie nft 1/day 5)"
expect 'the same, legacy 1.8.11' refused "$(try trixie legacy 1/day 5)"
expect 'the same, nft 1.8.7' accepted "$(try bullseye nft 1/day 5)"
expect '1/day, burst 1, legacy 1.8.11' accepted "$(try trixie legacy 1/day 1)"
expect '1/hour, burst 5, legacy 1.8.11' accepted "$(try trixie legacy 1/hour 5)"
