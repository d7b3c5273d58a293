#!/bin/bash
# A netdev chain whose device goes away and comes back under the same name.
. "$(dirname "$0")/lib.sh"
guess 'the chain goes with its device, as it did for years; a new device of that name needs the chain written again'
debian bookworm nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
start
pair() { on bookworm ip link add e1 type veth peer name e2; }
pair
on bookworm nft 'add table netdev n; add chain netdev n i { type filter hook ingress device e1 priority 0; }; add rule netdev n i counter'
chain() { on bookworm nft list table netdev n | grep -c 'device "e1"' || true; }
on bookworm ip link del e1
expect 'chains that name the device after its deletion' 1 "$(chain)"
pair
on bookworm ip link set e1 address 02:00:00:00:00:01 up
on bookworm ip link set e2 up
for _ in {1..40}; do
    packets=$(counters bookworm netdev n i)
    [ "$packets" = 0 ] || break
    sleep 0.1
done
expect 'the chain sees packets of the new device' yes "$([ "$packets" -gt 0 ] && echo yes)"
expect 'a chain for a device that never was, exit code' 0 \
    "$(on bookworm nft 'add chain netdev n j { type filter hook ingress device nope priority 0; }' 2>/dev/null; echo $?)"
