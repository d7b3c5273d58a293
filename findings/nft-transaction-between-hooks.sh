#!/bin/bash
# One transaction replaces the rules of two base chains: does a packet meet the old rules of both, or the new ones of both?
. "$(dirname "$0")/lib.sh"
guess 'a transaction is atomic: each packet meets either the old rules or the new ones, whichever hook priorities they are at'
debian bookworm nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
start
nft() { on bookworm nft "$@"; }
on bookworm ip link set lo up
# Between the two chains a packet takes about a millisecond, as with long lists of another program.
level() { echo "chain level$1 { $(for _ in 1 2 3 4 5 6 7 8 9 10; do echo "jump level$(($1 + 1));"; done) }"; }
nft "table ip slow { chain level5 { }
$(for number in 4 3 2 1 0; do level "$number"; done)
chain c { type filter hook output priority -150; udp dport 9 jump level0; }; }"
nft 'table ip t { counter mixed { }; counter passed { };
chain first { type filter hook output priority -300; meta mark set 1; }
chain last { type filter hook output priority 100; udp dport 9 counter name passed; udp dport 9 meta mark != 1 counter name mixed; }; }'
change() { # change MARK: both chains name this mark from now on
    echo "flush chain ip t first
add rule ip t first meta mark set $1
flush chain ip t last
add rule ip t last udp dport 9 counter name passed
add rule ip t last udp dport 9 meta mark != $1 counter name mixed"
}
packets() { nft list counter ip t "$1" | sed -n 's/.*packets \([0-9]*\).*/\1/p'; }
inside bash -c 'exec 3<>/dev/udp/127.0.0.1/9; for ((i = 0; i < 4000; i++)); do echo >&3; done' 2>/dev/null &
sender=$!
for ((change = 0; change < 100; change++)); do
    nft "$(change $((change % 2 + 1)))"
done
wait "$sender" || true
expect 'whether packets passed' yes "$([ "$(packets passed)" -gt 100 ] && echo yes)"
expect 'whether packets with the mark of one rule set met the other rule set' yes "$([ "$(packets mixed)" -gt 0 ] && echo yes || echo no)"
seen 'each chain is read by itself when a packet comes to it: a packet that is between two hooks or priorities meets the old rules of the first and the new ones of the second'
