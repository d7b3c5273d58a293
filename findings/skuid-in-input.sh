#!/bin/bash
# `meta skuid` in a chain of the input hook, which nft accepts (the owner match refuses that hook).
. "$(dirname "$0")/lib.sh"
guess 'in input there is no socket yet, so that the rule never matches, or always the one that the packet is for'
debian bookworm nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
on bookworm nft 'add table ip t; add chain ip t i { type filter hook input priority 0; }
    add rule ip t i tcp dport 8080 tcp flags & (syn | ack) == syn meta skuid 0 counter
    add rule ip t i tcp dport 8080 tcp flags & (syn | ack) == ack meta skuid 0 counter
    add rule ip t i tcp dport 8080 tcp flags & (syn | ack) == ack counter'
cat >"$folder/bookworm/tmp/server.py" <<'P'
import socket
server = socket.create_server(('10.0.0.1', 8080))
accepted = server.accept()[0]
while accepted.recv(100):
    accepted.send(b'x')
P
call() {
    on bookworm python3 /tmp/server.py &
    local server=$!
    listening 8080
    at_peer bash -c 'exec 3<>/dev/tcp/10.0.0.1/8080; for i in 1 2 3 4 5; do echo >&3; read -r -N 1 -u 3; done; exec 3>&-'
    wait "$server"
    counters bookworm ip t i
}
read -r syn owned all < <(call)
expect 'SYN with a uid' 0 "$syn"
[ "$all" -ge 5 ] && [ "$owned" -ge 5 ] || changed "of $all later packets $owned have a uid"
seen "later packets with a uid: $owned of $all"
inside bash -c 'echo 0 >/proc/sys/net/ipv4/ip_early_demux'
on bookworm nft reset counters table ip t >/dev/null 2>&1 || true
on bookworm nft list table ip t | sed 's/packets [0-9]* bytes [0-9]*//' >"$folder/bookworm/tmp/rules"
on bookworm nft flush ruleset
on bookworm nft -f /tmp/rules
read -r syn owned all < <(call)
expect 'with net.ipv4.ip_early_demux=0, packets with a uid' '0 0' "$syn $owned"
