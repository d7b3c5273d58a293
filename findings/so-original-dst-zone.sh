#!/bin/bash
# SO_ORIGINAL_DST of accepted connections: redirected, not redirected, tracked in a zone, not tracked.
. "$(dirname "$0")/lib.sh"
guess 'SO_ORIGINAL_DST gives the destination of every redirected connection, and an error for one that nothing redirected'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
on bookworm ip link set lo up

on bookworm iptables-nft -t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001
on bookworm iptables-nft -t nat -A OUTPUT -p tcp --dport 81 -j REDIRECT --to-ports 15009
on bookworm iptables-nft -t raw -A OUTPUT -o lo -p tcp -m multiport --ports 81,15009 -j CT --zone 1
on bookworm iptables-nft -t raw -A PREROUTING -i lo -p tcp -m multiport --ports 81,15009 -j CT --zone 1
on bookworm iptables-nft -t raw -A OUTPUT -p tcp --dport 15001 -d 127.0.0.2 -j CT --notrack

cat >"$folder/bookworm/tmp/dst.py" <<'P'
import errno, socket, struct, sys
server = socket.create_server(("0.0.0.0", int(sys.argv[3])))
client = socket.socket()
client.settimeout(3)
client.connect((sys.argv[1], int(sys.argv[2])))
accepted = server.accept()[0]
try:
    port, address = struct.unpack('!2xH4s8x', accepted.getsockopt(socket.SOL_IP, 80, 16))
    print(f'{socket.inet_ntoa(address)}:{port}')
except OSError as error:
    print(errno.errorcode[error.errno])
P
ask() { on bookworm python3 /tmp/dst.py "$@" || true; }
expect 'redirected' 127.0.0.1:80 "$(ask 127.0.0.1 80 15001)"
expect 'not redirected: its own destination, no error' 127.0.0.1:15001 "$(ask 127.0.0.1 15001 15001)"
expect 'not tracked' ENOENT "$(ask 127.0.0.2 15001 15001)"
expect 'redirected, in conntrack zone 1' ENOENT "$(ask 127.0.0.1 81 15009)"
