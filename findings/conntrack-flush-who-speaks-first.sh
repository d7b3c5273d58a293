#!/bin/bash
# `conntrack -F` while a redirected connection is open and idle.
. "$(dirname "$0")/lib.sh"
guess 'the connection breaks, or goes on, whichever side sends next'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 conntrack=1:1.4.7-1+b2 python3=3.11.2-1+b1
start
peer bookworm
on bookworm iptables-nft -t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001
cat >"$folder/bookworm/tmp/flush.py" <<'P'
import socket, subprocess, sys
server = socket.create_server(('127.0.0.1', 15001))
app = socket.create_connection(('10.0.0.2', 80))
proxy = server.accept()[0]
for end in (app, proxy):
    end.settimeout(2)
app.send(b'1')
proxy.recv(1)
subprocess.run(['conntrack', '-F'], stderr=subprocess.DEVNULL, check=True)
first, second = (app, proxy) if sys.argv[1] == 'app' else (proxy, app)
try:
    first.send(b'2')
    print(second.recv(1).decode())
except OSError as error:
    print(type(error).__name__)
P
expect 'the app sends next: it is redirected once more' 2 "$(on bookworm python3 /tmp/flush.py app)"
expect 'the proxy sends next: its packets keep the address 127.0.0.1' TimeoutError "$(on bookworm python3 /tmp/flush.py proxy)"
inside sh -c 'echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose'
expect 'the app sends next, nf_conntrack_tcp_loose=0' TimeoutError "$(on bookworm python3 /tmp/flush.py app)"
