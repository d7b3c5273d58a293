#!/bin/bash
# Rules for a cgroup by its path, when the cgroup is removed and made again, as a service manager does at a restart.
. "$(dirname "$0")/lib.sh"
guess 'the path that iptables-save prints is what counts: the new cgroup of that path matches, in iptables as in nft'
debian trixie iptables=1.8.11-2 nftables=1.1.3-1 iproute2=6.15.0-1
start
on trixie ip link set lo up
groups=$folder/trixie/sys/fs/cgroup
service=findings-$$
mounted() { nsenter --target "$holder" --net --mount "$@"; }
mkdir -p "$groups"
mounted mount -t cgroup2 none "$groups"
mounted mkdir "$groups/$service"
on trixie iptables-nft -A OUTPUT -p udp --dport 9 -m cgroup --path "$service" -j ACCEPT
on trixie nft "add table ip t; add chain ip t o { type filter hook output priority 1; }
    add rule ip t o udp dport 9 socket cgroupv2 level 1 \"$service\" counter"
send() {
    mounted bash -c "echo \$\$ >'$groups/$service/cgroup.procs'; echo >/dev/udp/127.0.0.1/9" 2>/dev/null || true
    echo "$(counters trixie ip filter OUTPUT), $(counters trixie ip t o)"
}
again() {
    for _ in {1..50}; do mounted rmdir "$groups/$service" 2>/dev/null && break || sleep 0.1; done
}
first=$(send)
again
gone=$(on trixie nft list chain ip t o 2>/dev/null | sed -n 's/.*\(level 1\) [0-9][0-9]* .*/\1 NUMBER/p')
mounted mkdir "$groups/$service"
second=$(send)
saved=$(on trixie iptables-nft-save | grep -o -e "--path $service")
on trixie iptables-nft -F
on trixie iptables-nft -A OUTPUT -p udp --dport 9 -m cgroup --path "$service" -j ACCEPT
third=$(send)
again
expect 'packets counted by iptables, by nft' '1, 1' "$first"
expect 'after one more packet from the cgroup that was made again' '1, 1' "$second"
expect 'what iptables-save prints all the time' "--path $service" "$saved"
expect 'after one more, with the iptables rule written again (from 0)' '1, 1' "$third"
expect 'nft prints a number when the cgroup is gone' 'level 1 NUMBER' "$gone"
