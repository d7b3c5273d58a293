#!/bin/bash
# The user of the SYNs of one MPTCP connection with a second path.
. "$(dirname "$0")/lib.sh"
guess 'every SYN of the connection has the user of the app that opened it'
debian trixie iptables=1.8.11-2 nftables=1.1.3-1 iproute2=6.15.0-1 python3=3.13.5-1
start
peer trixie
on trixie ip address add 10.0.1.1/24 dev eth0
at_peer chroot "$folder/trixie" ip address add 10.0.1.2/24 dev eth0
on trixie ip mptcp limits set subflow 2 add_addr_accepted 2
on trixie ip mptcp endpoint add 10.0.1.1 dev eth0 subflow
at_peer chroot "$folder/trixie" ip mptcp limits set subflow 2 add_addr_accepted 2
on trixie iptables-nft -A OUTPUT -p tcp --syn --dport 8080 -m owner --uid-owner 1337
on trixie iptables-nft -A OUTPUT -p tcp --syn --dport 8080 -m owner ! --uid-owner 1337
on trixie nft 'add table ip t; add chain ip t o { type filter hook output priority 0; }
    add rule ip t o tcp dport 8080 tcp flags & (syn | ack) == syn meta skuid 1337 counter
    add rule ip t o tcp dport 8080 tcp flags & (syn | ack) == syn meta skuid != 1337 counter
    add rule ip t o tcp dport 8080 tcp flags & (syn | ack) == syn counter'

cat >"$folder/trixie/tmp/server.py" <<'P'
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
server.bind(('0.0.0.0', 8080))
server.listen()
accepted = server.accept()[0]
while accepted.recv(100):
    accepted.send(b'x')
P
cat >"$folder/trixie/tmp/client.py" <<'P'
import os, socket, time
os.setuid(1337)
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
client.connect(('10.0.0.2', 8080))
for _ in range(5):
    client.send(b'x')
    client.recv(1)
    time.sleep(0.3)
P
at_peer chroot "$folder/trixie" python3 /tmp/server.py &
server=$!
sleep 1
on trixie python3 /tmp/client.py
wait "$server"
expect 'SYNs with --uid-owner 1337, with ! --uid-owner 1337' '1 1' "$(counters trixie ip filter OUTPUT)"
expect 'SYNs with skuid 1337, with skuid != 1337, in all' '1 0 2' "$(counters trixie ip t o)"
