#!/bin/bash
# CHECK of the bridge plugin for a pod, after another pod has been added to the same bridge; CRI-O calls it after each ADD.
. "$(dirname "$0")/lib.sh"
guess 'it succeeds as long as nothing of the pod is changed: another pod of the same network does not concern it'
debian bookworm containernetworking-plugins=1.1.1+ds1-3+b5 iproute2=6.1.0-3
debian sid containernetworking-plugins=1.9.1+ds1-1
start
on bookworm ip link set lo up
# plugin SUITE COMMAND POD: the bridge plugin, for CHECK with its result of ADD.
plugin() {
    printf '{"cniVersion": "1.0.0", "name": "n%s", "type": "bridge", "bridge": "br-%s"%s, "ipam": {"type": "host-local", "dataDir": "/tmp/leases",
        "ranges": [[{"subnet": "10.1.0.0/24"}]]}%s}' "$1" "$1" "$gateway" "$([ "$2" = ADD ] || printf ', "prevResult": %s' "$(cat "$folder/result-$3")")" |
        CNI_COMMAND=$2 CNI_CONTAINERID=$3 CNI_NETNS=/tmp/pods/$3 CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni on "$1" /usr/lib/cni/bridge
}
pod() {
    mkdir -p "$folder/$1/tmp/pods"
    nsenter --target "$holder" --mount touch "$folder/$1/tmp/pods/$2"
    nsenter --target "$holder" --mount unshare --net="$folder/$1/tmp/pods/$2" true
    plugin "$1" ADD "$2" >"$folder/result-$2"
}
check() { plugin "$1" CHECK "$2" >"$folder/error" 2>/dev/null && echo succeeds || sed -n 's/.*"msg": *"\(Bridge interface [a-z0-9-]* Mac\).*\(doesn.t match\).*/fails: \1 \2/p' "$folder/error"; }
gateway=
for suite in bookworm sid; do
    pod $suite first-$suite
    expect "$suite: CHECK of a pod, right after ADD" succeeds "$(check $suite first-$suite)"
    before=$(on bookworm ip -br link show dev br-$suite | grep -o '..:..:..:..:..:..')
    pod $suite next-$suite
    # The kernel gives random addresses, so about half of all pods have a lower one than those before; this one always has.
    veth=$(sed -n 's/.*"name": *"\(veth[0-9a-f]*\)".*/\1/p' "$folder/result-next-$suite")
    on bookworm ip link set dev "$veth" address 02:00:00:00:00:01
    after=$(on bookworm ip -br link show dev br-$suite | grep -o '..:..:..:..:..:..')
    expect "$suite: the address of the bridge changes with the next pod" yes "$([ "$before" = "$after" ] && echo no || echo yes)"
    expect "$suite: CHECK of the first pod" "fails: Bridge interface br-$suite Mac doesn't match" "$(check $suite first-$suite)"
done
# With an address of its own that the plugin has given it, the bridge keeps its hardware address.
gateway=', "isGateway": true'
on bookworm ip link del br-sid
pod sid first-gateway
pod sid next-gateway
veth=$(sed -n 's/.*"name": *"\(veth[0-9a-f]*\)".*/\1/p' "$folder/result-next-gateway")
on bookworm ip link set dev "$veth" address 02:00:00:00:00:01
expect 'sid, with isGateway: CHECK of the first pod' succeeds "$(check sid first-gateway)"
