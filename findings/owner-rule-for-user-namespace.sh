#!/bin/bash
# A program of the node writes rules into the network namespace of a pod that has a user namespace of its own.
. "$(dirname "$0")/lib.sh"
guess 'root of the node writes the same rules as root of the pod; a uid of a rule is one of the node'
debian bookworm iptables=1.8.9-2 nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
chmod 755 "$folder"
start
unshare --user --net bash -c 'echo ready; exec sleep 600' >"$folder/second" &
second=$!
until [ -s "$folder/second" ]; do sleep 0.05; done
for map in uid_map gid_map; do echo '0 100000 65536' >"/proc/$second/$map"; done
node() { nsenter --target "$second" --net nsenter --target "$holder" --mount chroot "$folder/bookworm" "$@"; }
pod() { nsenter --target "$second" --user --net chroot "$folder/bookworm" "$@"; }
node ip link set lo up

rule='-t nat -A OUTPUT -p tcp -m owner --uid-owner 1337 -j RETURN'
answer() {
    code=0
    "$@" >"$folder/answer" 2>&1 || code=$?
    echo "exit $code $(grep -o 'Invalid argument' "$folder/answer" || true)"
}
# shellcheck disable=SC2086
{
    expect 'iptables-nft of the node' 'exit 4 Invalid argument' "$(answer node iptables-nft $rule)"
    expect 'iptables-legacy of the node' 'exit 1 Invalid argument' "$(answer node iptables-legacy $rule)"
    expect 'iptables-nft of the node, without the owner' 'exit 0 ' "$(answer node iptables-nft -t nat -A OUTPUT -p tcp -j RETURN)"
    expect 'iptables-nft of the pod' 'exit 0 ' "$(answer pod iptables-nft $rule)"
}
expect 'nft of the node' 'exit 0 ' "$(answer node nft 'add table ip t; add chain ip t o { type filter hook output priority 0; }
    add rule ip t o meta skuid 1337 counter')"
matched() {
    nsenter --target "$second" --net setpriv --reuid "$1" --clear-groups bash -c 'echo >/dev/udp/127.0.0.1/9' 2>/dev/null || true
    node nft list chain ip t o | grep -o 'packets [0-9]*'
}
expect 'that rule after a packet of uid 1337 of the node' 'packets 0' "$(matched 1337)"
expect 'and after one of uid 101337, which is 1337 in the pod' 'packets 1' "$(matched 101337)"
