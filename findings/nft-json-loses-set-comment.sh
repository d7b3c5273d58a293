#!/bin/bash
# Comments through `nft -j list ruleset` and `nft -j -f`, as programs that save and restore rules use them.
. "$(dirname "$0")/lib.sh"
guess 'the JSON of nft holds all that the text holds: what is loaded from it lists the same'
debian bookworm nftables=1.0.6-2+deb12u2
debian trixie nftables=1.1.3-1
start
printf '%s\n' 'table inet t {' '  comment "of the table"' '  counter k {' '    comment "of the counter"' '  }' \
    '  set s {' '    type ipv4_addr' '    comment "of the set"' '    elements = { 10.0.0.1 comment "of the element" }' '  }' \
    '  map m {' '    type ipv4_addr : inet_service' '    comment "of the map"' '  }' \
    '  chain c {' '    comment "of the chain"' '    counter comment "of the rule"' '  }' '}' >"$folder/rules"
comments() { on "$1" nft list ruleset | grep -o 'comment "[^"]*"' | sed 's/comment "of the \(.*\)"/\1/' | sort | paste -sd' '; }
for suite in bookworm trixie; do
    cp "$folder/rules" "$folder/$suite/tmp/rules"
    on "$suite" nft -f /tmp/rules
    expect "$suite: comments" 'chain counter element map rule set table' "$(comments "$suite")"
    on "$suite" nft -j list ruleset >"$folder/$suite/tmp/rules.json"
    on "$suite" nft flush ruleset
    on "$suite" nft -j -f /tmp/rules.json
    expect "$suite: comments after JSON" "$([ "$suite" = bookworm ] && echo 'counter element rule' || echo 'chain counter element rule table')" \
        "$(comments "$suite")"
    on "$suite" nft flush ruleset
done
