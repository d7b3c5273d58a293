#!/bin/bash
# `iptables-restore --test` before the real call.
. "$(dirname "$0")/lib.sh"
guess '--test refuses what the real call refuses, with both variants'
debian trixie iptables=1.8.11-2
start

both() {
    local variant=$1 rules=$2 test=0 real=0
    printf '%s\n' "$rules" | on trixie "iptables-$variant-restore" --test >/dev/null 2>&1 || test=$?
    printf '%s\n' "$rules" | on trixie "iptables-$variant-restore" >/dev/null 2>&1 || real=$?
    echo "--test $test, real call $real"
}
missing='*nat
-A PREROUTING -j ISTIO_INBOUND
COMMIT'
hook='*nat
-A PREROUTING -m owner --uid-owner 1337 -j RETURN
COMMIT'
expect 'jump to a chain that does not exist, nft, exit codes' '--test 0, real call 2' "$(both nft "$missing")"
expect 'jump to a chain that does not exist, legacy' '--test 2, real call 2' "$(both legacy "$missing")"
expect 'owner match in PREROUTING, nft' '--test 0, real call 4' "$(both nft "$hook")"
expect 'owner match in PREROUTING, legacy' '--test 0, real call 1' "$(both legacy "$hook")"
