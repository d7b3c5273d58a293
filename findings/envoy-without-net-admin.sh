#!/bin/bash
# Envoy without NET_ADMIN, with the settings of TPROXY mode.
. "$(dirname "$0")/lib.sh"
guess 'a listener with transparent: true fails alone; with original_src Envoy connects to nothing without the mark'
debian bookworm iproute2=6.1.0-3
pypi_envoy 1.40.0
start
on bookworm ip link set lo up

config() {
    cat <<Y
static_resources:
  listeners:
  - name: plain
    address: {socket_address: {address: 127.0.0.1, port_value: 15001}}
    filter_chains: &chains
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: tcp
          cluster: app
  - name: inbound
    address: {socket_address: {address: 127.0.0.1, port_value: 15006}}
    $1
    filter_chains: *chains
  clusters:
  - name: app
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: app
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8080}}}}]}]
Y
}
run_envoy() {
    config "$1" >"$folder/envoy.yaml"
    chmod 644 "$folder/envoy.yaml"
    inside setpriv --reuid 1337 --regid 1337 --clear-groups --bounding-set -all \
        "$envoy" --disable-hot-restart --concurrency 1 -c "$folder/envoy.yaml" >"$folder/log" 2>&1 &
    envoy_process=$!
}
run_envoy 'transparent: true'
code=0
wait "$envoy_process" || code=$?
expect 'transparent: true, exit code of Envoy' 1 "$code"

cat >"$folder/app.py" <<'P'
import socket
server = socket.create_server(('127.0.0.1', 8080))
connection, address = server.accept()
print(address[0], flush=True)
connection.send(b'ok\n')
P
run_envoy 'listener_filters: [{name: src, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_src.v3.OriginalSrc, mark: 1337}}]'
listening 15006
inside python3 "$folder/app.py" >"$folder/source" &
app=$!
listening 8080
answer=$(inside timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/15006; read -r line <&3; echo "$line"' || true)
stop "$app"
stop "$envoy_process"
expect 'original_src with mark 1337: answer that the client gets' '' "$answer"
expect 'source of the connection that the app accepted all the same' 127.0.0.1 "$(cat "$folder/source")"
expect 'log' 'warning: Setting SOL_SOCKET/SO_MARK option on socket failed: Operation not permitted' \
    "$(sed -n 's/.*\[warning\].*\] \(Setting SOL_SOCKET.*\)/warning: \1/p' "$folder/log")"
