#!/bin/bash
# `iptables -X` without a chain name, as cleanup scripts call it after `-F`, beside a native table of nftables.
. "$(dirname "$0")/lib.sh"
guess '-X deletes user chains; built-in chains stay, and so does their place among other chains of the same priority'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 python3=3.11.2-1+b1
debian trixie iptables=1.8.11-2
start
on bookworm ip link set lo up
cat >"$folder/bookworm/tmp/which.py" <<'P'
import select, socket
servers = [socket.create_server(('127.0.0.1', port)) for port in (15001, 15002)]
client = socket.create_connection(('127.0.0.1', 80))
print(select.select(servers, [], [], 2)[0][0].getsockname()[1])
P
which() { on bookworm python3 /tmp/which.py; }
hooks() { on bookworm nft list table ip nat | grep -c hook || true; }
capture() { on "$1" iptables-nft -t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001; }
for suite in bookworm trixie; do
    capture "$suite"
    on bookworm nft 'add table ip mine; add chain ip mine o { type nat hook output priority -100; }
        add rule ip mine o tcp dport 80 redirect to :15002'
    expect "$suite: both redirect, the table that came last decides" 15002 "$(which)"
    on "$suite" iptables-nft -t nat -F
    expect "$suite: chains with a hook after -F" 1 "$(hooks)"
    capture "$suite"
    expect "$suite: the same rule again after -F" 15002 "$(which)"
    on "$suite" iptables-nft -t nat -F
    on "$suite" iptables-nft -t nat -X
    expect "$suite: chains with a hook after -F and -X" 0 "$(hooks)"
    capture "$suite"
    expect "$suite: the same rule again after -F and -X: iptables decides now" 15001 "$(which)"
    on bookworm nft flush ruleset
done
