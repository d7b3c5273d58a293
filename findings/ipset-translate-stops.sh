#!/bin/bash
# Saved sets of ipset, translated by `ipset-translate restore` and loaded by nft.
. "$(dirname "$0")/lib.sh"
guess 'what has no counterpart in nft is named in a remark or an error, and the rest is translated'
debian trixie ipset=7.22-1+b1 nftables=1.1.3-1
start
translate() {
    printf '%s\n' "$@" >"$folder/saved"
    on trixie ipset restore <"$folder/saved" || changed 'ipset itself refuses these lines'
    on trixie ipset-translate restore <"$folder/saved" >"$folder/trixie/tmp/sets"
    grep -v 'add table' "$folder/trixie/tmp/sets" || true
    on trixie nft -f /tmp/sets >/dev/null 2>&1 && echo 'nft loads it' || echo 'nft refuses it'
}
expect 'a set with skbinfo, then a plain one: it ends there, exit 0' '# create s hash:ip skbinfo
nft loads it' "$(translate 'create s hash:ip skbinfo' 'add s 1.1.1.1' 'create f hash:ip' 'add f 1.1.1.1')"
expect 'the exception nomatch becomes a member' 'add set inet global n { type ipv4_addr; flags interval; }
add element inet global n { 10.0.0.0/8 }
add element inet global n { 10.1.0.0/16 }
nft refuses it' "$(translate 'create n hash:net' 'add n 10.0.0.0/8' 'add n 10.1.0.0/16 nomatch')"
expect 'the port of a bridge becomes an interface' 'add set inet global i { type ipv4_addr . ifname; flags interval; }
add element inet global i { 10.0.0.0/8 . eth0 }
nft loads it' "$(translate 'create i hash:net,iface' 'add i 10.0.0.0/8,physdev:eth0')"
expect 'an element without an end gets the timeout of its set' 'add set inet global t { type ipv4_addr; timeout 60s; }
add element inet global t { 1.1.1.1 timeout 0s }
nft loads it' "$(translate 'create t hash:ip timeout 60' 'add t 1.1.1.1 timeout 0')"
expect 'what nft lists then' 'elements = { 1.1.1.1 expires SOON }' \
    "$(on trixie nft list set inet global t | sed -n 's/expires [0-9a-z]*/expires SOON/; s/^\t*\(elements.*\)/\1/p')"
