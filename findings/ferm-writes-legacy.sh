#!/bin/bash
# ferm where the command iptables is iptables-nft, as Debian's alternative is by default.
. "$(dirname "$0")/lib.sh"
guess 'ferm calls iptables, so iptables -S and nft list ruleset show its rules'
debian trixie ferm=2.5.1-4 iptables=1.8.11-2 nftables=1.1.3-1 iproute2=6.15.0-1 dash=0.5.12-12
for tool in '' -save -restore; do
    for name in iptables ip6tables; do ln -s "$name-nft$tool" "$folder/trixie/usr/sbin/$name$tool"; done
done
start
printf 'domain ip table filter chain INPUT { policy DROP; proto tcp dport 22 ACCEPT; }\n' >"$folder/trixie/tmp/ferm.conf"
on trixie ferm /tmp/ferm.conf
rules() { on trixie "$1" -S INPUT | paste -sd';'; }
expect 'iptables -S INPUT' '-P INPUT ACCEPT' "$(rules iptables)"
expect 'nft list ruleset' '' "$(on trixie nft list ruleset)"
expect 'iptables-legacy -S INPUT' '-P INPUT DROP;-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT' "$(rules iptables-legacy)"
