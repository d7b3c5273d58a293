#!/bin/bash
# `nft --check` with a reset command, as used to see whether a script would be accepted.
. "$(dirname "$0")/lib.sh"
guess '-c changes nothing: counters, quotas and rules keep what they counted'
debian bookworm nftables=1.0.6-2+deb12u2
debian trixie nftables=1.1.3-1
start
show() { on "$1" nft list table ip t | grep -oE 'packets [0-9]+|used [0-9]+' | paste -sd' '; }
for suite in bookworm trixie; do
    on "$suite" nft 'add table ip t; add counter ip t c { packets 5 bytes 6; }; add quota ip t q { 100 bytes used 50 bytes; }
        add chain ip t x; add rule ip t x counter packets 7 bytes 8'
    expect "before, $suite" 'packets 5 used 50 packets 7' "$(show "$suite")"
    on "$suite" nft -c reset counters >/dev/null
    on "$suite" nft -c reset quotas >/dev/null
    expect "after -c reset counters, -c reset quotas, $suite" 'packets 0 packets 7' "$(show "$suite")"
    if [ "$suite" = trixie ]; then
        on "$suite" nft -c reset rules >/dev/null
        expect 'after -c reset rules' 'packets 0 packets 0' "$(show "$suite")"
    fi
    on "$suite" nft delete table ip t
done
on trixie nft 'add table ip t; add counter ip t c { packets 5 bytes 6; }'
on trixie nft -c flush ruleset
expect '-c of a command that writes does nothing' 'packets 5' "$(show trixie)"
