#!/bin/bash
# The destination of an inbound connection after REDIRECT, when the interface has several addresses.
. "$(dirname "$0")/lib.sh"
guess 'IPv6 takes the first address of the interface, as IPv4 does'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3
start
peer bookworm
there() { at_peer chroot "$folder/bookworm" "$@"; }
for end in on\ bookworm there; do
    $end ip address add "fd00::$([ "$end" = there ] && echo 2 || echo 1)/64" dev eth0 nodad
done
on bookworm iptables-nft -t nat -A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 15006
on bookworm ip6tables-nft -t nat -A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 15006
cat >"$folder/proxy.py" <<'P'
import socket
server = socket.create_server(('::', 15006), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    connection = server.accept()[0]
    connection.send(connection.getsockname()[0].removeprefix('::ffff:').encode())
    connection.close()
P
inside python3 "$folder/proxy.py" &
proxy=$!
listening 15006
arrives() { at_peer timeout 2 bash -c "cat </dev/tcp/$1/80"; }
on bookworm ip address add 10.0.0.3/24 dev eth0
on bookworm ip address add 10.0.0.4/24 dev eth0
expect 'IPv4: calls to 10.0.0.1, 10.0.0.3, 10.0.0.4 arrive at' '10.0.0.1 10.0.0.1 10.0.0.1' \
    "$(arrives 10.0.0.1) $(arrives 10.0.0.3) $(arrives 10.0.0.4)"
expect 'IPv6: a call to fd00::1 arrives at' fd00::1 "$(arrives fd00::1)"
on bookworm ip address add fd00::3/64 dev eth0 nodad
expect 'after fd00::3 was added, calls to fd00::1 and fd00::3 arrive at' 'fd00::3 fd00::3' "$(arrives fd00::1) $(arrives fd00::3)"
on bookworm ip address add 2001:db8::4/64 dev eth0 nodad
expect 'after 2001:db8::4 was added, a call to fd00::1 arrives at' 2001:db8::4 "$(arrives fd00::1)"
stop "$proxy"
