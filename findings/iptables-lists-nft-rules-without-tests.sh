#!/bin/bash
# iptables-nft-save on one of its own chains to which `nft` added a rule.
. "$(dirname "$0")/lib.sh"
guess 'iptables calls the table incompatible, as it does for `ct state`, or fails; what it prints is the whole rule'
debian trixie iptables=1.8.11-2 nftables=1.1.3-1
start
on trixie iptables-nft -t nat -A OUTPUT -p tcp -j ACCEPT

listing() {
    on trixie iptables-nft -t nat -F OUTPUT
    on trixie nft add rule ip nat OUTPUT "$@"
    local code=0
    on trixie iptables-nft-save -t nat >"$folder/out" 2>"$folder/messages" || code=$?
    echo "$(grep -h -e '^-A' -e incompatible "$folder/out" "$folder/messages"), exit $code"
}
expect 'ct state new' "# Table \`nat' is incompatible, use 'nft' tool., exit 0" "$(listing ct state new accept)"
expect 'one port' '-A OUTPUT -p tcp -m tcp --dport 80 -j RETURN, exit 0' "$(listing tcp dport 80 return)"
expect 'a set of ports: no port' '-A OUTPUT -p tcp -j RETURN, exit 0' "$(listing tcp dport '{ 80, 443 }' return)"
expect 'a set of addresses: every packet' '-A OUTPUT -j RETURN, exit 0' "$(listing ip daddr '{ 10.0.0.1, 10.0.0.2 }' return)"
expect 'a verdict map: no target' '-A OUTPUT -p tcp, exit 0' "$(listing tcp dport vmap '{ 80 : return }')"
expect 'skuid, in contrast, ends the listing' ', exit 3' "$(listing meta skuid 1337 return)"
