#!/bin/bash
# The destination (`dst`) that HAProxy gives for connections that REDIRECT brings to it.
. "$(dirname "$0")/lib.sh"
guess 'the destination before REDIRECT, for IPv4 and IPv6, on separate listeners and on one for both'
debian bookworm haproxy=2.6.12-1+deb12u3 iptables=1.8.9-2 iproute2=6.1.0-3
debian trixie haproxy=3.0.11-1+deb13u4
start
peer bookworm
on bookworm ip address add fd00::1/64 dev eth0 nodad
on bookworm ip route add default via 10.0.0.2
on bookworm ip route add default via fd00::2
for tool in iptables-nft ip6tables-nft; do on bookworm "$tool" -t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001; done
# What HAProxy logs as destination of calls to 10.0.0.2:80 and [fd00::2]:80, with these lines of bind.
destinations() {
    cat >"$folder/$suite/tmp/haproxy.cfg" <<C
defaults
  mode tcp
  timeout client 2s
frontend outbound
  $1
  log stdout format raw daemon
  log-format "%[dst] %[dst_port]"
  tcp-request content reject
C
    on "$suite" haproxy -db -f /tmp/haproxy.cfg >"$folder/log" 2>/dev/null &
    haproxy=$!
    listening 15001
    for address in 10.0.0.2 fd00::2; do inside timeout 2 bash -c "exec 3<>/dev/tcp/$address/80; cat <&3" >/dev/null 2>&1 || true; done
    sleep 0.3
    stop "$haproxy"
    paste -sd, "$folder/log"
}
for suite in bookworm trixie; do
    expect "$suite: one listener for each family" '10.0.0.2 80,::1 15001' "$(destinations 'bind 0.0.0.0:15001
  bind :::15001 v6only')"
    expect "$suite: bind :::15001 v4v6" '::ffff:127.0.0.1 15001,::1 15001' "$(destinations 'bind :::15001 v4v6')"
done
