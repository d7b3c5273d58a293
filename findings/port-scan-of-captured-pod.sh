#!/bin/bash
# Tools with which people test whether a port of another host answers, where REDIRECT captures all TCP.
. "$(dirname "$0")/lib.sh"
guess 'nmap gives the same answer with -sS and -sT, open, as the proxy answers both'
debian bookworm nmap=7.93+dfsg1-1 hping3=3.a2.ds2-10 traceroute=1:2.1.2-1 iptables=1.8.9-2 iproute2=6.1.0-3
start
peer bookworm
on bookworm ip route add default via 10.0.0.2
at_peer python3 -m http.server 80 >/dev/null 2>&1 &
inside python3 -m http.server 15001 >/dev/null 2>&1 &
listening 15001
until inside bash -c 'exec 3<>/dev/tcp/10.0.0.2/80' 2>/dev/null; do sleep 0.1; done
export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/blas:/usr/lib/x86_64-linux-gnu/lapack
# What nmap says of a port that is open, of one that is closed, and of a host that does not exist.
scan() {
    on bookworm nmap -n -Pn "$1" -p 80,81 --max-retries 1 10.0.0.2 >"$folder/scan"
    on bookworm nmap -n -Pn "$1" -p 80 --max-retries 1 10.9.9.9 >>"$folder/scan"
    sed -n 's/^[0-9]*.tcp *\([a-z]*\) .*/\1/p' "$folder/scan" | paste -sd,
}
expect 'without rules, -sS' open,closed,filtered "$(scan -sS)"
expect 'without rules, -sT' open,closed,filtered "$(scan -sT)"
on bookworm iptables-nft -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001
expect 'with REDIRECT, -sS' filtered,filtered,filtered "$(scan -sS)"
expect 'with REDIRECT, -sT' open,open,open "$(scan -sT)"
expect 'with REDIRECT, hping3 -S: answers' '0 packets received' \
    "$(on bookworm hping3 -n -S -p 80 -c 1 10.0.0.2 2>&1 | grep -o '[0-9]* packets received')"
expect 'with REDIRECT, traceroute -T to the host that does not exist' '1 10.9.9.9' \
    "$(on bookworm traceroute.db -n -T -p 80 -q 1 -m 3 -w 1 10.9.9.9 | awk 'NR > 1 { print $1, $2 }')"
