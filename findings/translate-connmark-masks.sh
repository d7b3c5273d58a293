#!/bin/bash
# Masks of CONNMARK in `iptables-translate`; `nft list ruleset` shows such a rule in the same words.
. "$(dirname "$0")/lib.sh"
guess 'a translated CONNMARK rule sets the same bits as the rule of iptables'
debian trixie iptables=1.8.11-2 nftables=1.1.3-1 iproute2=6.15.0-1
start
on trixie ip link set lo up

# Sends one packet with mark 0xff00 and connection mark 0xa through the mangle table; prints both marks behind it.
marks() {
    on trixie nft 'add table ip t
        add chain ip t before { type filter hook output priority -190; }
        add rule ip t before meta l4proto udp meta mark set 0xff00 ct mark set 0xa
        add chain ip t after { type filter hook output priority 200; }
        add set ip t packet { type mark; flags dynamic; }
        add set ip t connection { type mark; flags dynamic; }
        add rule ip t after meta l4proto udp add @packet { meta mark } add @connection { ct mark }'
    inside bash -c 'echo >/dev/udp/127.0.0.1/1001' 2>/dev/null || true
    echo "packet $(on trixie nft list set ip t packet | grep -o '0x[0-9a-f]*')," \
        "connection $(on trixie nft list set ip t connection | grep -o '0x[0-9a-f]*')"
}
compare() {
    local original=$1 translated=$2 text
    shift 2
    on trixie nft flush ruleset
    on trixie iptables-nft -t mangle -A OUTPUT -p udp "$@"
    expect "iptables $*" "$original" "$(marks)"
    text=$(on trixie iptables-translate -t mangle -A OUTPUT -p udp "$@")
    text=${text#nft \'add rule ip mangle OUTPUT } text=${text%\'}
    on trixie nft flush ruleset
    on trixie nft "add table ip mangle; add chain ip mangle OUTPUT { type route hook output priority mangle; }"
    on trixie nft "add rule ip mangle OUTPUT $text"
    expect "$text" "$translated" "$(marks)"
}
compare 'packet 0x0000ff00, connection 0x00000005' 'packet 0x0000ff00, connection 0x0000000a' -j CONNMARK --set-mark 0x5/0xff
compare 'packet 0x0000ff0a, connection 0x0000000a' 'packet 0x0000000a, connection 0x0000000a' -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff
