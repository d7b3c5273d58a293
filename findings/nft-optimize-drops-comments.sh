#!/bin/bash
# `nft -o` on rules with comments, by which programs recognise their own rules, and with counters.
. "$(dirname "$0")/lib.sh"
guess 'nft --optimize merges what has no comment or counter of its own, or keeps them'
debian bookworm nftables=1.0.6-2+deb12u2
debian trixie nftables=1.1.3-1
start
# optimized SUITE RULES: the rules of the file as they are loaded with -o.
optimized() {
    on "$1" nft flush ruleset
    printf 'table ip t {\nchain o {\ntype filter hook output priority 0;\n%s\n}\n}\n' "$2" >"$folder/$1/tmp/file"
    on "$1" nft -o -f /tmp/file >"$folder/log" 2>&1 || cat "$folder/log"
    on "$1" nft -s list chain ip t o | sed -n '/type filter/d; s/^\t\t//p'
}
commented='tcp dport 15020 return comment "health"
tcp dport 15090 return comment "metrics"'
for suite in bookworm trixie; do
    expect "$suite, rules with comments" 'tcp dport { 15020, 15090 } return' "$(optimized "$suite" "$commented")"
done
counted='ip daddr 10.0.0.1 tcp dport 90 counter accept
ip daddr 10.0.0.2 tcp dport 91 counter return'
counters_left() { optimized "$1" "$counted" | grep -o counter | wc -l; }
expect 'bookworm, counters of two rules with counters' 0 "$(counters_left bookworm)"
expect 'trixie, counters of two rules with counters' 2 "$(counters_left trixie)"
