#!/bin/bash
# Two connections with one source port to two destinations, as the kernel hands them out under load, both redirected.
. "$(dirname "$0")/lib.sh"
guess 'REDIRECT changes the destination only: the proxy sees the source port that the app has'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
on bookworm iptables-nft -t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001
cat >"$folder/bookworm/tmp/ports.py" <<'P'
import socket, struct
proxy = socket.create_server(('127.0.0.1', 15001))
open_connections = []
for destination in ('10.0.0.2', '10.0.0.3'):
    app = socket.socket()
    app.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    app.bind(('10.0.0.1', 40000))
    app.connect((destination, 80))
    accepted, peer = proxy.accept()
    open_connections += [app, accepted]
    port, address = struct.unpack('!2xH4s8x', accepted.getsockopt(socket.SOL_IP, 80, 16))
    seen = 'the same' if peer[1] == 40000 else 'another'
    print(f'{peer[0]} {seen} port, SO_ORIGINAL_DST {socket.inet_ntoa(address)}:{port}')
P
expect 'what the proxy sees' '10.0.0.1 the same port, SO_ORIGINAL_DST 10.0.0.2:80
10.0.0.1 another port, SO_ORIGINAL_DST 10.0.0.3:80' "$(on bookworm python3 /tmp/ports.py)"
