#!/bin/bash
# `iptables -S CHAIN` and `-L CHAIN` for a chain that does not exist, as when a pod is not captured.
. "$(dirname "$0")/lib.sh"
guess 'No chain/target/match by that name, as iptables-legacy says'
debian bookworm iptables=1.8.9-2
debian trixie iptables=1.8.11-2
start
missing='iptables: No chain/target/match by that name.'
for command in -S -L; do
    on trixie iptables-nft -t nat -N OTHER
    expect "1.8.11, nft variant: $command" "$missing" "$(on trixie iptables-nft -t nat $command ISTIO_OUTPUT 2>&1 || true)"
    expect "1.8.9, nft variant: $command" \
        "iptables v1.8.9 (nf_tables): chain \`ISTIO_OUTPUT' in table \`nat' is incompatible, use 'nft' tool." \
        "$(on bookworm iptables-nft -t nat $command ISTIO_OUTPUT 2>&1 || true)"
    on trixie iptables-nft -t nat -X OTHER
done
expect '1.8.9, nft variant: -F' "$missing" "$(on bookworm iptables-nft -t nat -F ISTIO_OUTPUT 2>&1 || true)"
for command in -S -L; do
    expect "1.8.9, legacy variant: $command" "$missing" "$(on bookworm iptables-legacy -t nat $command ISTIO_OUTPUT 2>&1 || true)"
done
