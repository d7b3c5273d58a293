#!/bin/bash
# The original destination of a UDP datagram that REDIRECT brought to a DNS proxy.
. "$(dirname "$0")/lib.sh"
guess 'IP_RECVORIGDSTADDR gives the destination before REDIRECT, as SO_ORIGINAL_DST does for TCP'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
cat >"$folder/bookworm/tmp/udp.py" <<'P'
import socket, struct
IP_RECVORIGDSTADDR, SO_ORIGINAL_DST = 20, 80
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 15053))
server.setsockopt(socket.SOL_IP, IP_RECVORIGDSTADDR, 1)
server.settimeout(2)
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(2)
client.connect(('10.0.0.2', 53))
client.send(b'?')
data, control, flags, sender = server.recvmsg(100, 100)
port, address = struct.unpack('!2xH4s', control[0][2][:8])
print(f'{socket.inet_ntoa(address)}:{port}', end=' ')
try:
    server.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
except OSError as error:
    print(error.errno, end=' ')
server.sendto(b'!', sender)
print(client.recvfrom(10)[1][0])
P
on bookworm iptables-nft -t nat -A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 15053
expect 'IP_RECVORIGDSTADDR, errno of SO_ORIGINAL_DST (92 is ENOPROTOOPT), sender of the answer as the app sees it' \
    '127.0.0.1:15053 92 10.0.0.2' "$(on bookworm python3 /tmp/udp.py)"
