#!/bin/bash
# REDIRECT in PREROUTING: where a packet goes that was sent to the second address of eth0, or to one on lo.
. "$(dirname "$0")/lib.sh"
guess 'REDIRECT changes the port only: the proxy sees the address that the client called'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3 python3=3.11.2-1+b1
start
peer bookworm
on bookworm ip address add 10.0.0.9/24 dev eth0
on bookworm ip address add 10.0.1.1/32 dev lo
at_peer chroot "$folder/bookworm" ip route add 10.0.1.1/32 via 10.0.0.1
on bookworm iptables-nft -t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 15006

cat >"$folder/bookworm/tmp/server.py" <<'P'
import socket
server = socket.create_server(('0.0.0.0', 15006))
server.settimeout(3)
try:
    print(server.accept()[0].getsockname()[0])
except OSError as error:
    print(error)
P
call() {
    on bookworm python3 /tmp/server.py &
    local server=$!
    listening 15006
    at_peer timeout 2 bash -c "exec 3<>/dev/tcp/$1/8080" 2>/dev/null || true
    wait "$server"
}
expect 'called 10.0.0.9, arrived at' 10.0.0.1 "$(call 10.0.0.9)"
expect 'called 10.0.1.1 on lo, arrived at' 10.0.0.1 "$(call 10.0.1.1)"
on bookworm ip address flush dev eth0
on bookworm ip address add 10.0.1.1/32 dev lo 2>/dev/null || true
on bookworm ip route add 10.0.0.0/24 dev eth0 src 10.0.1.1
at_peer chroot "$folder/bookworm" ip route replace 10.0.1.1/32 dev eth0
expect 'called 10.0.1.1 on lo while eth0 has no IPv4 address' 'timed out' "$(call 10.0.1.1)"
on bookworm iptables-nft -t nat -F
on bookworm iptables-nft -t nat -A PREROUTING -p tcp -j DNAT --to-destination :15006
expect 'the same with DNAT --to-destination :15006' 10.0.1.1 "$(call 10.0.1.1)"
