#!/bin/bash
# A program that uses libnftables and enters the network namespace of a pod, as agents on nodes do.
. "$(dirname "$0")/lib.sh"
guess 'a command goes to the network namespace in which the thread is when it runs the command'
debian bookworm python3-nftables=1.0.6-2+deb12u2 iproute2=6.1.0-3
debian trixie python3-nftables=1.1.3-1 nftables=1.1.3-1 iproute2=6.15.0-1
start
peer bookworm
cat >"$folder/enter.py" <<'P'
import ctypes, sys
from nftables import Nftables

def enter():
    with open(sys.argv[1]) as namespace:
        if ctypes.CDLL(None).setns(namespace.fileno(), 0):
            raise SystemExit('setns failed')

if sys.argv[2] == 'before':
    enter()
context = Nftables()
if sys.argv[2] == 'after':
    enter()
code, _, error = context.cmd('add table ip written')
print(f'exit {code}{error}', end='')
P
nft() { nsenter --target "$1" --net chroot "$folder/trixie" nft "${@:2}"; }
for suite in bookworm trixie; do
    cp "$folder/enter.py" "$folder/$suite/tmp/"
    for made in before after; do
        result=$(on "$suite" python3 /tmp/enter.py "/proc/$second/ns/net" "$made")
        got="$result, in the first: $(nft "$holder" list tables), in the second: $(nft "$second" list tables)"
        nft "$holder" flush ruleset
        nft "$second" flush ruleset
        if [ "$made" = before ]; then
            expect "$suite, second namespace entered before the context is made" \
                'exit 0, in the first: , in the second: table ip written' "$got"
        else
            expect "$suite, entered after it, before its first command" \
                'exit 0, in the first: table ip written, in the second: ' "$got"
        fi
    done
done
