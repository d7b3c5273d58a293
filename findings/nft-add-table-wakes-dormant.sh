#!/bin/bash
# A table that is switched off by the flag dormant, and a script that begins with `add table` as most do.
. "$(dirname "$0")/lib.sh"
guess 'add table for a table that exists changes nothing; only a declaration with flags changes flags'
debian bookworm nftables=1.0.6-2+deb12u2
debian trixie nftables=1.1.3-1
start
on_lo() { on "$1" nft 'flush ruleset; add table inet t { flags dormant; }; add chain inet t o { type filter hook output priority 0; policy drop; }'; }
flags() { on "$1" nft list table inet t | grep -o 'flags.*' || true; }
for suite in bookworm trixie; do
    on_lo "$suite"
    expect "before, $suite" 'flags dormant' "$(flags "$suite")"
    on "$suite" nft add rule inet t o tcp dport 80 accept
    expect "after add rule, $suite" 'flags dormant' "$(flags "$suite")"
    on "$suite" nft add table inet t
    expect "after add table, $suite: its policy drop is in force" '' "$(flags "$suite")"
    on_lo "$suite"
    printf 'table inet t {\n  set s { type inet_service; }\n}\n' >"$folder/$suite/tmp/rules"
    on "$suite" nft -f /tmp/rules
    expect "after a file that adds a set to the table, $suite" '' "$(flags "$suite")"
done
