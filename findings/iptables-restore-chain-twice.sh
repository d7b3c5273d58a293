#!/bin/bash
# `iptables-restore --noflush` with a file joined of two parts that both declare the chain they add to.
. "$(dirname "$0")/lib.sh"
guess '--noflush keeps rules: the second declaration is an error or does nothing, both rules exist'
debian trixie iptables=1.8.11-2
start

for variant in nft legacy; do
    printf '%s\n' '*nat' ':ISTIO_OUTPUT - [0:0]' '-A ISTIO_OUTPUT -d 10.0.0.1/32 -j RETURN' \
        ':ISTIO_OUTPUT - [0:0]' '-A ISTIO_OUTPUT -d 10.0.0.2/32 -j RETURN' COMMIT |
        on trixie "iptables-$variant-restore" --noflush
    expect "$variant, exit 0: the first rule is gone" '-A ISTIO_OUTPUT -d 10.0.0.2/32 -j RETURN' \
        "$(on trixie "iptables-$variant-save" -t nat 2>/dev/null | grep '^-A ISTIO')"
    on trixie "iptables-$variant" -t nat -A PREROUTING -d 10.0.0.3/32 -j RETURN
    printf '%s\n' '*nat' ':PREROUTING ACCEPT [0:0]' COMMIT | on trixie "iptables-$variant-restore" --noflush
    expect "$variant: a declared built-in chain keeps its rules" '-A PREROUTING -d 10.0.0.3/32 -j RETURN' \
        "$(on trixie "iptables-$variant-save" -t nat 2>/dev/null | grep '^-A PRE')"
done
