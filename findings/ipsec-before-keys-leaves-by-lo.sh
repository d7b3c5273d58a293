#!/bin/bash
# Packets for which an IPsec policy exists and no keys yet, as strongSwan leaves them with start_action = trap.
. "$(dirname "$0")/lib.sh"
guess 'a policy block does not concern what REDIRECT sends to this machine; without keys, packets are dropped on their way out of eth0'
debian trixie iproute2=6.15.0-1 iptables=1.8.11-2
start
peer trixie
on trixie ip route add default via 10.0.0.2
# Where a connection to 198.51.100.10:80 is seen to leave, and what a rule for -o lo does with it.
for variant in iptables-nft iptables-legacy; do
    for interface in eth0 lo; do on trixie "$variant" -A OUTPUT -p tcp --dport 80 -o $interface; done
    count() { on trixie "$variant" -nvxL OUTPUT | awk 'NR > 2 { print $1 }' | paste -sd' '; }
    call() { inside timeout 0.4 bash -c 'exec 3<>/dev/tcp/198.51.100.10/80' 2>&1 | sed 's/.*: //' || true; }
    call >/dev/null
    expect "$variant, no policy: SYNs with -o eth0, with -o lo" '1 0' "$(count)"
    on trixie "$variant" -Z
    on trixie ip xfrm policy add dir out dst 198.51.100.0/24 tmpl src 10.0.0.1 dst 10.0.0.2 proto esp mode tunnel
    call >/dev/null
    expect "$variant, policy without keys: SYNs with -o eth0, with -o lo" '0 1' "$(count)"
    on trixie "$variant" -t nat -A OUTPUT -p tcp -o lo -j REDIRECT --to-ports 15006
    inside python3 -c '
import socket
listener = socket.create_server(("127.0.0.1", 15006))
client = socket.create_connection(("198.51.100.10", 80), timeout=2)
print("connected to port", listener.accept()[0].getsockname()[1])' >"$folder/connected" 2>&1 || true
    expect "$variant, policy without keys: REDIRECT of what leaves by lo" 'connected to port 15006' "$(tail -n 1 "$folder/connected")"
    on trixie ip xfrm policy flush
    on trixie "$variant" -t nat -F
    on trixie "$variant" -t nat -A OUTPUT -p tcp -o eth0 -j REDIRECT --to-ports 15001
    on trixie ip xfrm policy add dir out dst 198.51.100.0/24 action block
    expect "$variant, policy block: call whose packets REDIRECT would send to this machine" 'Operation not permitted' "$(call | tail -n 1)"
    on trixie ip xfrm policy flush
    on trixie "$variant" -t nat -F
    on trixie "$variant" -F
done
