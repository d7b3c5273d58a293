#!/bin/bash
# TPROXY of iptables and `tproxy` of nftables while no proxy listens on the port.
. "$(dirname "$0")/lib.sh"
guess 'both do the same with a packet for which no socket listens on the TPROXY port'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
on bookworm ip link set lo up
cat >"$folder/bookworm/tmp/connect.py" <<'P'
import socket
server = socket.create_server(('127.0.0.1', 8080))
client = socket.socket()
client.settimeout(1)
try:
    client.connect(('127.0.0.1', 8080))
    print('connected to the app')
except OSError as error:
    print(f'{error}')
P
call() { on bookworm python3 /tmp/connect.py; }

on bookworm iptables-nft -t mangle -A PREROUTING -p tcp --dport 8080 -j TPROXY --on-port 15006 --tproxy-mark 1337
expect 'iptables-nft' 'timed out' "$(call)"
on bookworm nft flush ruleset
on bookworm iptables-legacy -t mangle -A PREROUTING -p tcp --dport 8080 -j TPROXY --on-port 15006 --tproxy-mark 1337
expect 'iptables-legacy' 'timed out' "$(call)"
on bookworm iptables-legacy -t mangle -F

on bookworm nft 'add table ip t; add chain ip t p { type filter hook prerouting priority mangle; }
    add rule ip t p tcp dport 8080 counter tproxy to :15006 meta mark set 1337 accept
    add rule ip t p tcp dport 8080 counter'
expect 'nftables' 'connected to the app' "$(call)"
count=$(counters bookworm ip t p)
expect 'packets that went on to the next rule' "${count% *}" "${count#* }"
