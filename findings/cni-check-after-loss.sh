#!/bin/bash
# CHECK of CNI plugins, which a runtime or an agent calls to learn whether a pod's network is as ADD made it.
. "$(dirname "$0")/lib.sh"
guess 'it succeeds right after ADD, and fails when something that the plugin made is gone'
debian bookworm containernetworking-plugins=1.1.1+ds1-3+b5 iptables=1.8.9-2 iproute2=6.1.0-3
start
tree=$folder/bookworm
on bookworm ip link set lo up
inside sysctl -qw net.ipv4.ip_forward=1
for tool in iptables ip6tables; do ln -s xtables-nft-multi "$tree/usr/sbin/$tool"; done
unshare --net bash -c 'echo ready; exec sleep 600' >"$folder/second" &
second=$!
until [ -s "$folder/second" ]; do sleep 0.05; done
pod() { nsenter --target "$second" --net chroot "$tree" "$@"; }
# plugin COMMAND FIELDS: calls the plugin of "type" with the result of the bridge plugin, as runtimes do.
plugin() {
    printf '{"cniVersion": "1.0.0", "name": "n", %s%s}' "$2" "${result:+, \"prevResult\": $result}" |
        CNI_COMMAND=$1 CNI_CONTAINERID=pod CNI_NETNS=/proc/$second/ns/net CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni \
            on bookworm "/usr/lib/cni/$(sed -n '1s/.*"type": "\([a-z]*\)".*/\1/p' <<<"$2")" 2>/dev/null
}
check() { plugin CHECK "$1" >"$folder/error" && echo succeeds || { printf 'fails: '; sed -n 's/.*"msg": "\(.*\)".*/\1/p' "$folder/error" | cut -c1-60; }; }
result=
bridge='"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}'
result=$(plugin ADD "$bridge")
expect 'bridge, after ADD' succeeds "$(check "$bridge")"
on bookworm iptables -t nat -F
expect 'bridge, masquerading rules deleted' succeeds "$(check "$bridge")"

bandwidth='"type": "bandwidth", "ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000'
plugin ADD "$bandwidth" >/dev/null
expect 'bandwidth, after ADD' succeeds "$(check "$bandwidth")"
for device in $(on bookworm tc qdisc | sed -n 's/qdisc tbf .* dev \([a-z0-9]*\) .*/\1/p'); do on bookworm tc qdisc del dev "$device" root; done
expect 'bandwidth, its two tbf qdiscs deleted' 'succeeds, qdiscs: 0' "$(check "$bandwidth"), qdiscs: $(on bookworm tc qdisc | grep -c tbf || true)"

sbr='"type": "sbr"'
plugin ADD "$sbr" >/dev/null
expect 'sbr, after ADD: rules for the pod' '1, succeeds' "$(pod ip rule | grep -c 'from 10.1.0.2'), $(check "$sbr")"
pod ip rule del from 10.1.0.2
expect 'sbr, its rule deleted' succeeds "$(check "$sbr")"

tuning='"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}'
plugin ADD "$tuning" >/dev/null
expect 'tuning, after ADD' succeeds "$(check "$tuning")"
nsenter --target "$second" --net sysctl -qw net.core.somaxconn=600
expect 'tuning, value changed' 'fails: Error: Tuning configured value' "$(check "$tuning" | sed 's/ of .*//')"
tuning='"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.route_localnet": "1"}'
plugin ADD "$tuning" >/dev/null
expect 'tuning with IFNAME, after ADD: value' 1 "$(nsenter --target "$second" --net sysctl -n net.ipv4.conf.eth0.route_localnet)"
expect 'tuning with IFNAME, after ADD' 'fails: open /proc/sys/net/ipv4/conf/IFNAME/route_localnet' "$(check "$tuning" | sed 's/: no such.*//')"

portmap='"type": "portmap", "capabilities": {"portMappings": true},
    "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}'
plugin ADD "$portmap" >/dev/null
expect 'portmap, pod with an IPv4 address, after ADD: DNAT rules' 1 "$(on bookworm iptables -t nat -S | grep -c -e '-j DNAT')"
expect 'portmap, after ADD' 'fails: could not check ipv6 dnat: chain CNI-DN-' "$(check "$portmap" | sed 's/\(CNI-DN-\).*/\1/')"
