#!/bin/bash
# DNS redirected to a port where nothing listens, with and without the conntrack zones that keep both sides of a proxy apart.
. "$(dirname "$0")/lib.sh"
guess 'the ICMP error goes back to the resolver in both cases: it fails at once with ECONNREFUSED'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
cat >"$folder/bookworm/tmp/ask.py" <<'P'
import socket
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(1.5)
client.connect(('10.0.0.2', 53))
try:
    client.send(b'?')
    client.recv(10)
except OSError as error:
    print(type(error).__name__)
P
ask() { on bookworm python3 /tmp/ask.py; }
raw() { on bookworm iptables-nft -t raw -A OUTPUT "$@" -j CT --zone 2; }
on bookworm iptables-nft -t nat -A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 15053
expect 'without zones' ConnectionRefusedError "$(ask)"
raw -p udp --dport 53
raw -p udp --sport 15053
expect 'query and answer in zone 2: the error is in zone 0, where there is no such connection' TimeoutError "$(ask)"
raw -p icmp --icmp-type destination-unreachable
expect 'errors in zone 2, too' ConnectionRefusedError "$(ask)"
