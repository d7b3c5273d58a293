#!/bin/bash
# An IPv6 address on lo, a peer on a link: does a reply from that address reach the peer once the peer's neighbour entry has expired?
. "$(dirname "$0")/lib.sh"
guess 'the kernel asks for the neighbour in the name of any address of the link, so the reply arrives'
debian bookworm iproute2=6.1.0-3
start
peer bookworm
ip6() { on bookworm ip -6 "$@"; }
on bookworm ip link set lo up
ip6 address add 2001:db8:1::1/64 dev eth0 nodad
ip6 address add 2001:db8:4::1/128 dev lo
at_peer ip -6 address add 2001:db8:1::2/64 dev eth0 nodad
at_peer ip -6 route add 2001:db8:4::1 via 2001:db8:1::1
# The kernel adds the routes of new addresses a moment later; link-local addresses are usable after some seconds.
for _ in $(seq 100); do
    [ "$(ip6 route show table local | grep -c '^local 2001')" = 2 ] && ! ip6 address show tentative | grep -q fe80 && break
    sleep 0.1
done
call() {
    local said
    said=$(at_peer timeout 3 bash -c 'exec 3<>/dev/tcp/2001:db8:4::1/9' 2>&1 || true)
    case $said in *refused*) echo yes ;; *) echo no ;; esac
}
expect 'whether a reply arrives' yes "$(call)"
ip6 neighbour flush dev eth0
expect 'whether it does without the entry of the neighbour' yes "$(call)"
ip6 address flush dev eth0 scope link
ip6 neighbour flush dev eth0
expect 'whether it does without the entry, and without a link-local address' no "$(call)"
seen 'for a packet whose source is no address of the link, the neighbour is asked for in the name of the link-local address only: without one it is not asked for, and nothing is said, although the link has a global address'
