#!/bin/bash
# A UDP server on the wildcard address to which REDIRECT brings an app's queries, as a DNS proxy of a pod.
. "$(dirname "$0")/lib.sh"
guess 'the app gets the answer from the address that it asked: conntrack turns it back, whatever the server is bound to'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
on bookworm iptables-nft -t nat -A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 15053
cat >"$folder/bookworm/tmp/udp.py" <<'P'
import socket, sys
bound, connected = sys.argv[1], sys.argv[2] == 'connected'
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((bound, 15053))
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(2)
if connected:
    client.connect(('10.0.0.2', 53))
    client.send(b'?')
else:
    client.sendto(b'?', ('10.0.0.2', 53))
server.settimeout(2)
server.sendto(b'!', server.recvfrom(10)[1])
try:
    address, port = client.recvfrom(10)[1]
    print(f'{address}:{port}')
except OSError as error:
    print(type(error).__name__)
P
ask() { on bookworm python3 /tmp/udp.py "$@"; }
expect 'server on 127.0.0.1' 10.0.0.2:53 "$(ask 127.0.0.1 connected)"
expect 'server on 0.0.0.0, app with a connected socket, as resolvers use' TimeoutError "$(ask 0.0.0.0 connected)"
expect 'server on 0.0.0.0, app with another socket: the sender of the answer' 10.0.0.1:15053 "$(ask 0.0.0.0 other)"
