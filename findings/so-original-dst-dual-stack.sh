#!/bin/bash
# SO_ORIGINAL_DST on connections that a listener on [::] accepted, as Go's net.Listen(":15001") opens it.
. "$(dirname "$0")/lib.sh"
guess 'the option has the level of the socket: SOL_IPV6 for AF_INET6; an IPv4 destination comes as ::ffff:127.0.0.5'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
on bookworm ip link set lo up
for family in iptables-nft ip6tables-nft; do on bookworm "$family" -t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001; done
cat >"$folder/bookworm/tmp/dst.py" <<'P'
import errno, socket, struct, sys
def original(connection, level):
    try:
        if level == socket.SOL_IP:
            port, address = struct.unpack('!2xH4s8x', connection.getsockopt(level, 80, 16))
            return f'{socket.inet_ntop(socket.AF_INET, address)} port {port}'
        port, address = struct.unpack('!2xH4x16s4x', connection.getsockopt(level, 80, 28))
        return f'{socket.inet_ntop(socket.AF_INET6, address)} port {port}'
    except OSError as error:
        return errno.errorcode[error.errno]
server = socket.create_server(('::', 15001), family=socket.AF_INET6, dualstack_ipv6=True)
app = socket.create_connection((sys.argv[1], 80))
connection = server.accept()[0]
print(f'{connection.family.name}, SOL_IPV6: {original(connection, 41)}, SOL_IP: {original(connection, 0)}')
P
expect 'app connects to [::1]:80' 'AF_INET6, SOL_IPV6: ::1 port 80, SOL_IP: ENOENT' "$(on bookworm python3 /tmp/dst.py ::1)"
expect 'app connects to 127.0.0.5:80' 'AF_INET6, SOL_IPV6: ENOENT, SOL_IP: 127.0.0.5 port 80' "$(on bookworm python3 /tmp/dst.py 127.0.0.5)"
