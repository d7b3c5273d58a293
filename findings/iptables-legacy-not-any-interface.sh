#!/bin/bash
# A rule of iptables-legacy for no interface at all, saved and restored.
. "$(dirname "$0")/lib.sh"
guess 'iptables-save prints ! -o + as it was given, and restore brings the same rule back'
debian bookworm iptables=1.8.9-2 iproute2=6.1.0-3
debian trixie iptables=1.8.11-2
start
on bookworm ip link set lo up
send() { inside bash -c 'echo >/dev/udp/127.0.0.1/9' 2>/dev/null || true; }
hits() { send; on "$1" iptables-legacy -L OUTPUT -v -n -x | awk '/ACCEPT/ && !/policy/ { print $1 }'; }
for suite in bookworm trixie; do
    [ "$suite" = bookworm ] && option= restored=1 || option=' ! -o +' restored=0 # 1.8.11 is right
    on "$suite" iptables-legacy -A OUTPUT ! -o + -p udp -j ACCEPT
    expect "$suite: packets that match" 0 "$(hits "$suite")"
    on "$suite" iptables-legacy-save >"$folder/$suite/tmp/saved"
    expect "$suite: saved" "-A OUTPUT$option -p udp -j ACCEPT" "$(grep -e -A "$folder/$suite/tmp/saved")"
    on "$suite" iptables-legacy-restore /tmp/saved
    expect "$suite: packets that match after restore" "$restored" "$(hits "$suite")"
    on "$suite" iptables-legacy -F
done
