#!/bin/bash
# An outbound connection of a socket with SO_BINDTODEVICE that REDIRECT sends to the proxy.
. "$(dirname "$0")/lib.sh"
guess 'it reaches the proxy as one that is bound to the address of the device does'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
on bookworm iptables-nft -t nat -A OUTPUT -p tcp -o eth0 -j REDIRECT --to-ports 15001
on bookworm iptables-nft -t mangle -A POSTROUTING -o eth0 -p tcp -d 127.0.0.1
cat >"$folder/bookworm/tmp/call.py" <<'P'
import socket, sys
server = socket.create_server(('0.0.0.0', 15001))
client = socket.socket()
client.settimeout(1.5)
if sys.argv[1] == 'device':
    client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0\0')
if sys.argv[1] == 'address':
    client.bind(('10.0.0.1', 0))
if sys.argv[1] == 'unicast-if':
    client.setsockopt(socket.SOL_IP, 50, socket.htonl(socket.if_nametoindex('eth0')))
try:
    client.connect(('10.0.0.2', 8080))
    print('reaches the proxy at', server.accept()[0].getsockname()[0])
except OSError as error:
    print(error)
P
call() { on bookworm python3 /tmp/call.py "$1"; }
expect 'bound to the address' 'reaches the proxy at 127.0.0.1' "$(call address)"
expect 'IP_UNICAST_IF' 'reaches the proxy at 127.0.0.1' "$(call unicast-if)"
expect 'SO_BINDTODEVICE' 'timed out' "$(call device)"
count=$(on bookworm iptables-nft -t mangle -L POSTROUTING -nvx | awk 'END { print $1 }')
[ "$count" -ge 1 ] || changed 'no packet to 127.0.0.1 leaves by eth0 any more'
seen 'its SYN leaves by eth0 with the destination 127.0.0.1'
