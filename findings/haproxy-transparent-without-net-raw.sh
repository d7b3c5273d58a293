#!/bin/bash
# HAProxy behind TPROXY, as a user without capabilities.
. "$(dirname "$0")/lib.sh"
guess 'without capabilities `bind … transparent` fails at the start, as in Envoy'
debian bookworm haproxy=2.6.12-1+deb12u3 iptables=1.8.9-2 iproute2=6.1.0-3 util-linux=2.38.1-5+deb12u3
start
peer bookworm
on bookworm ip rule add fwmark 1 lookup 133
on bookworm ip route add local default dev lo table 133
on bookworm iptables-nft -t mangle -A PREROUTING -p tcp --dport 80 -j TPROXY --on-port 15006 --tproxy-mark 1
cat >"$folder/bookworm/tmp/haproxy.cfg" <<'C'
defaults
  mode tcp
  timeout connect 1s
  timeout client 2s
  timeout server 2s
frontend inbound
  bind 0.0.0.0:15006 transparent
  tcp-request content reject
C
# Starts HAProxy and calls it: directly, then through TPROXY.
run() {
    on bookworm setpriv --reuid 1337 --regid 1337 --clear-groups "$@" haproxy -db -f /tmp/haproxy.cfg >"$folder/log" 2>&1 &
    haproxy=$!
    listening 15006
    printf 'lines of output: %s' "$(wc -l <"$folder/log")"
    for port in 15006 80; do
        at_peer timeout 2 bash -c "exec 3<>/dev/tcp/10.0.0.1/$port" 2>/dev/null && printf ', %s: connected' "$port" || printf ', %s: no answer' "$port"
    done
    stop "$haproxy"
}
expect 'without capabilities' 'lines of output: 0, 15006: connected, 80: no answer' "$(run --bounding-set -all)"
expect 'with NET_RAW' 'lines of output: 0, 15006: connected, 80: connected' "$(run --inh-caps +net_raw --ambient-caps +net_raw)"
