#!/bin/bash
# Policy rules with uidrange, and packets that no process of this machine sent.
. "$(dirname "$0")/lib.sh"
guess 'uidrange 0-0 selects what root sends; forwarded packets and resets of the kernel have no uid, so no uidrange selects them'
debian bookworm iproute2=6.1.0-3 nftables=1.0.6-2+deb12u2
start
peer bookworm
inside bash -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
on bookworm ip link add b0 type bridge
on bookworm ip address add 10.7.0.9/16 dev b0
on bookworm ip link set b0 up
at_peer chroot "$folder/bookworm" ip route add 10.7.0.0/16 via 10.0.0.1
on bookworm nft 'add table ip t; add chain ip t f { type filter hook forward priority 0; }
    add rule ip t f ip daddr 10.7.0.1 counter'
on bookworm ip route add blackhole default table 133
with_rule() {
    on bookworm ip rule add pref 9 uidrange "$1" to "$2" lookup 133
    shift 2
    "$@"
    on bookworm ip rule del pref 9
}
forward() {
    at_peer bash -c 'echo >/dev/udp/10.7.0.1/9'
    sleep 0.2
    counters bookworm ip t f
}
call() {
    code=0
    at_peer timeout 1 bash -c "echo >/dev/tcp/10.0.0.1/$1" 2>/dev/null || code=$?
    case $code in 0) echo connected ;; 124) echo 'times out' ;; *) echo refused ;; esac
}
expect 'datagrams of the peer that were forwarded, after one without such a rule' 1 "$(forward)"
expect 'after one more with a blackhole for uidrange 1000-1000' 2 "$(with_rule 1000-1000 10.7.0.0/16 forward)"
expect 'after one more with a blackhole for uidrange 0-0' 2 "$(with_rule 0-0 10.7.0.0/16 forward)"
expect 'a call of the peer to a port where nothing listens, blackhole for 1000-1000' refused "$(with_rule 1000-1000 10.0.0.2 call 81)"
expect 'the same for 0-0: the reset has uid 0' 'times out' "$(with_rule 0-0 10.0.0.2 call 81)"
inside setpriv --reuid 1000 --clear-groups python3 -c '
import socket, time
server = socket.create_server(("10.0.0.1", 8080))
time.sleep(20)' &
app=$!
listening 8080
expect 'a call to the app of uid 1000, blackhole for 0-0' connected "$(with_rule 0-0 10.0.0.2 call 8080)"
expect 'the same for 1000-1000: SYN-ACKs have the uid of the app' 'times out' "$(with_rule 1000-1000 10.0.0.2 call 8080)"
stop "$app"
